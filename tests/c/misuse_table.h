/* What the table of misuse needs: it is made from the header, by tests/c_api/misuse.rs. */
#include "check.h"

static mmq_options *options, *gone_options;
static mmq_queue *queue, *gone_queue, *dead;
static mmq_consumer *consumer, *gone_consumer;
static mmq_message *message, *gone_message;
static mmq_delivery *delivery, *gone_delivery;
static mmq_iter *iter, *gone_iter;
static mmq_lanes *lanes, *gone_lanes;
static mmq_client *client, *gone_client;
static mmq_client_consumer *client_consumer, *gone_client_consumer;
static mmq_lane_options lane_options;
static mmq_slice slice = {"x", 1};
static char buf[16];

/* Where outputs go. What is refused leaves it as it was. */
struct outs {
  uint64_t number;
  size_t size, count;
  bool truth;
  int descriptor;
  mmq_gap gap;
  uint8_t id[16];
  mmq_stats stats;
  mmq_consumer_stats consumer_stats;
  mmq_inspection inspection;
  mmq_origin origin;
  mmq_stretch stretch;
  mmq_queue *queue;
  mmq_consumer *consumer;
  mmq_message *message;
  mmq_copied_message copied;
  mmq_delivery *delivery;
  mmq_iter *iter;
  mmq_lanes *lanes;
  mmq_client *client;
  mmq_client_consumer *client_consumer;
};
static struct outs outs, before;

static void reset(void) {
  memset(&outs, 0, sizeof outs);
  outs.number = outs.size = outs.count = 42;
  outs.stats.struct_size = sizeof outs.stats;
  outs.consumer_stats.struct_size = sizeof outs.consumer_stats;
  outs.inspection.struct_size = sizeof outs.inspection;
  outs.origin.struct_size = sizeof outs.origin;
  memcpy(&before, &outs, sizeof outs);
  memset(buf, 'b', sizeof buf);
}

static void untouched(void) {
  size_t at;
  CHECK(memcmp(&outs, &before, sizeof outs) == 0);
  for (at = 0; at < sizeof buf; at++) CHECK(buf[at] == 'b');
}

#define REFUSED(call)                   \
  do {                                  \
    reset();                            \
    ANSWERS(MMQ_INVALID_ARGUMENT, call); \
    untouched();                        \
  } while (0)

#define REFUSES(value, call) \
  do {                       \
    reset();                 \
    CHECK((call) == (value)); \
    untouched();             \
  } while (0)

/* Here NULL is no mistake. */
#define ALLOWED(call)                                               \
  do {                                                              \
    char allowed_before[200], allowed_after[200];                   \
    REFUSED(mmq_len(NULL, NULL));                                   \
    mmq_last_error(allowed_before, sizeof allowed_before);          \
    reset();                                                        \
    (void)(call);                                                   \
    mmq_last_error(allowed_after, sizeof allowed_after);            \
    CHECK(strcmp(allowed_before, allowed_after) == 0);              \
    OK(mmq_close(outs.queue));                                      \
    mmq_consumer_free(outs.consumer);                               \
    mmq_message_free(outs.message);                                 \
    mmq_delivery_free(outs.delivery);                               \
    mmq_iter_free(outs.iter);                                       \
    mmq_lanes_free(outs.lanes);                                     \
    mmq_client_free(outs.client);                                   \
    mmq_client_consumer_free(outs.client_consumer);                 \
  } while (0)

static void begin(int argc, char **argv) {
  BEGIN(argc, argv);
  options = mmq_options_new();
  OK(mmq_options_set_shared(options, true));
  OK(mmq_open(path_of("one"), options, &queue));
  OK(mmq_enqueue(queue, "first", 5, NULL));
  OK(mmq_enqueue(queue, "second", 6, NULL));
  OK(mmq_consumer_open(queue, "one", &consumer));
  OK(mmq_peek(queue, &message));
  OK(mmq_consumer_receive(consumer, &delivery));
  OK(mmq_iter_open(queue, &iter));
  OK(mmq_lanes_open(consumer, NULL, &lanes));

  OK(mmq_open(path_of("dead"), NULL, &dead));

  gone_options = mmq_options_new();
  mmq_options_free(gone_options);
  OK(mmq_open(path_of("gone"), NULL, &gone_queue));
  OK(mmq_close(gone_queue));
  OK(mmq_consumer_open(queue, "gone", &gone_consumer));
  mmq_consumer_free(gone_consumer);
  OK(mmq_peek(queue, &gone_message));
  mmq_message_free(gone_message);
  OK(mmq_receive(queue, &gone_delivery));
  OK(mmq_delivery_nack(gone_delivery));
  OK(mmq_iter_open(queue, &gone_iter));
  mmq_iter_free(gone_iter);
  OK(mmq_lanes_open(consumer, NULL, &gone_lanes));
  mmq_lanes_free(gone_lanes);
  OK(mmq_connect(path_of("one"), &client));
  OK(mmq_client_consumer_open(client, "clients", &client_consumer));
  OK(mmq_connect(path_of("one"), &gone_client));
  mmq_client_free(gone_client);
  OK(mmq_client_consumer_open(client, "gone", &gone_client_consumer));
  mmq_client_consumer_free(gone_client_consumer);
}

/* Nothing that lives was harmed. */
static int end(void) {
  CHECK(mmq_message_len(message) == 5 && memcmp(mmq_message_data(message), "first", 5) == 0);
  CHECK(mmq_delivery_len(delivery) == 5 && memcmp(mmq_delivery_data(delivery), "first", 5) == 0);
  mmq_message_free(message);
  OK(mmq_iter_next(iter, &message));
  mmq_message_free(message);
  mmq_iter_free(iter);
  OK(mmq_delivery_ack(delivery));
  mmq_lanes_free(lanes);
  mmq_client_consumer_free(client_consumer);
  mmq_client_free(client);
  mmq_consumer_free(consumer);
  mmq_options_free(options);
  OK(mmq_flush(queue));
  OK(mmq_close(queue));
  OK(mmq_close(dead));
  return 0;
}
