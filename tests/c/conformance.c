/* Answers the calls of tests/conformance.json: reads one a line, and prints the answer. */
#include "check.h"

static mmq_queue *queue;
/* By the letter that a call gives them. The queue's own consumer, `-`, has no handle. */
static mmq_consumer *consumers[128];
static mmq_delivery *deliveries[128];

/* The words of the line; a word that is not there is empty. */
static char *words[16];
static int count;

static int letter(int word) { return words[word][0] & 127; }
static uint64_t number(int word) { return strtoull(words[word], NULL, 10); }

static void split(char *line) {
  int word;
  line[strcspn(line, "\n")] = 0;
  for (count = 0; line != NULL; count++) {
    CHECK(count < 16);
    words[count] = line;
    if ((line = strchr(line, ' ')) != NULL) *line++ = 0;
  }
  for (word = count; word < 16; word++) words[word] = "";
}

/* The bytes that a word stands for, with a zero byte behind them. */
static mmq_slice decoded(const char *word) {
  const char *star = strchr(word, '*');
  size_t len = star ? strtoul(word, NULL, 10) : 0;
  char *bytes = malloc(len + strlen(word) + 1);
  mmq_slice slice;
  CHECK(bytes != NULL);
  if (star) memset(bytes, star[1], len);
  for (; !star && *word && strcmp(word, "%") != 0; word++) {
    unsigned byte = (unsigned char)*word;
    if (byte == '%') {
      CHECK(sscanf(word, "%%%2x", &byte) == 1);
      word += 2;
    }
    bytes[len++] = (char)byte;
  }
  bytes[len] = 0;
  slice.data = bytes;
  slice.len = len;
  return slice;
}

static void put_bytes(const uint8_t *bytes, size_t len) {
  size_t at = 1;
  while (at < len && bytes[at] == bytes[0]) at++;
  if (len > 64 && at == len) {
    printf("%zu*%c", len, bytes[0]);
    return;
  }
  if (len == 0) printf("%%");
  for (at = 0; at < len; at++) printf(bytes[at] >= 'a' && bytes[at] <= 'z' ? "%c" : "%%%02x", bytes[at]);
}

/* What a call without a result answers; a read says through which consumer. */
static void told(mmq_status status, int consumer) {
  mmq_gap gap;
  if (status == MMQ_OK) {
    printf("ok");
  } else if (status == MMQ_EMPTY || status == MMQ_TIMED_OUT) {
    printf("none");
  } else if (status == MMQ_GAP) {
    OK(consumer == '-' ? mmq_last_gap(queue, &gap) : mmq_consumer_last_gap(consumers[consumer], &gap));
    printf("gap %llu %llu %d", (unsigned long long)gap.first, (unsigned long long)gap.last, (int)gap.cause);
  } else {
    printf("error %d", (int)status);
  }
}

static void told_number(mmq_status status, const uint64_t *result) {
  told(status, 0);
  if (status == MMQ_OK) printf(" %llu", (unsigned long long)*result);
}

static void message(mmq_status status, mmq_message **message) {
  if (status != MMQ_OK) {
    told(status, letter(1));
    return;
  }
  printf("message %llu ", (unsigned long long)mmq_message_seq(*message));
  put_bytes(mmq_message_data(*message), mmq_message_len(*message));
  mmq_message_free(*message);
}

static void receive(void) {
  mmq_consumer *consumer = consumers[letter(1)];
  mmq_delivery *delivery;
  int64_t wait = (int64_t)number(3);
  mmq_status status =
      consumer ? mmq_consumer_receive_timeout(consumer, wait, &delivery) : mmq_receive_timeout(queue, wait, &delivery);
  if (status != MMQ_OK) {
    told(status, letter(1));
    return;
  }
  printf("delivery %llu %u ", (unsigned long long)mmq_delivery_seq(delivery), mmq_delivery_attempts(delivery));
  put_bytes(mmq_delivery_data(delivery), mmq_delivery_len(delivery));
  deliveries[letter(2)] = delivery;
}

static mmq_status open_queue(void) {
  mmq_options *options = mmq_options_new();
  mmq_status status;
  int word;
  for (word = 1; word < count; word++) {
    char *value = strchr(words[word], '=') + 1;
    if (strncmp(words[word], "max_bytes", 9) == 0) OK(mmq_options_set_max_bytes(options, strtoull(value, NULL, 10)));
    if (strncmp(words[word], "arena_size", 10) == 0) OK(mmq_options_set_arena_size(options, strtoull(value, NULL, 10)));
    if (strcmp(words[word], "on_full=drop-oldest") == 0) OK(mmq_options_set_on_full(options, MMQ_DROP_OLDEST, 0));
    if (strcmp(words[word], "create=false") == 0) OK(mmq_options_set_create(options, false));
  }
  status = mmq_open(path_of("queue"), options, &queue);
  mmq_options_free(options);
  return status;
}

static void enqueue_batch(void) {
  mmq_slice messages[16];
  uint64_t first = 0;
  int word;
  for (word = 1; word < count; word++) messages[word - 1] = decoded(words[word]);
  told_number(mmq_enqueue_batch(queue, messages, (size_t)(count - 1), &first), &first);
}

static void stats(void) {
  mmq_stats s;
  s.struct_size = sizeof s;
  OK(mmq_read_stats(queue, &s));
  printf("stats %d %d %d %d %d %d %d %d %d", (int)s.messages, (int)s.next_seq, (int)s.enqueued, (int)s.dequeued,
         (int)s.consumers, (int)s.gaps, (int)s.lost_messages, (int)s.refused, (int)s.rejected);
}

#define CALLED(name) (strcmp(words[0], name) == 0)

static void answer(void) {
  mmq_consumer *consumer = consumers[letter(1)];
  mmq_delivery *delivery = deliveries[letter(1)];
  mmq_slice bytes;
  mmq_message *out = NULL;
  uint64_t result = 0;
  if (CALLED("open")) told(open_queue(), 0);
  else if (CALLED("close")) told(mmq_close(queue), 0);
  else if (CALLED("enqueue")) bytes = decoded(words[1]), told_number(mmq_enqueue(queue, bytes.data, bytes.len, &result), &result);
  else if (CALLED("enqueue_batch")) enqueue_batch();
  else if (CALLED("flush")) told(mmq_flush(queue), 0);
  else if (CALLED("durable_seq")) told_number(mmq_durable_seq(queue, &result), &result);
  else if (CALLED("wait_durable")) told(mmq_wait_durable(queue, number(1)), 0);
  else if (CALLED("stats")) stats();
  else if (CALLED("consumer")) told(mmq_consumer_open(queue, decoded(words[2]).data, &consumers[letter(1)]), 0);
  else if (CALLED("remove_consumer")) told(mmq_consumer_remove(queue, decoded(words[1]).data), 0);
  else if (CALLED("peek")) message(consumer ? mmq_consumer_peek(consumer, &out) : mmq_peek(queue, &out), &out);
  else if (CALLED("dequeue")) message(consumer ? mmq_consumer_dequeue(consumer, &out) : mmq_dequeue(queue, &out), &out);
  else if (CALLED("receive")) receive();
  else if (CALLED("ack")) told(mmq_delivery_ack(delivery), 0);
  else if (CALLED("nack")) told(mmq_delivery_nack(delivery), 0);
  else if (CALLED("nack_after")) told(mmq_delivery_nack_after(delivery, (int64_t)number(2)), 0);
  else if (CALLED("extend")) told(mmq_delivery_extend(delivery, (int64_t)number(2)), 0);
  else if (CALLED("reject")) told(mmq_delivery_reject(delivery), 0);
  else if (CALLED("seek")) told(mmq_consumer_seek(consumer, number(2)), 0);
  else if (CALLED("redelivery")) {
    const int64_t lease = (int64_t)number(2), delay = (int64_t)number(3);
    const uint32_t attempts = (uint32_t)number(4);
    told(consumer ? mmq_consumer_set_redelivery(consumer, lease, delay, delay, attempts, NULL)
                  : mmq_set_redelivery(queue, lease, delay, delay, attempts, NULL), 0);
  } else printf("no such call");
}

int main(int argc, char **argv) {
  char line[4096];
  BEGIN(argc, argv);
  while (fgets(line, sizeof line, stdin) != NULL) {
    split(line);
    answer();
    printf("\n");
    fflush(stdout);
  }
  return 0;
}
