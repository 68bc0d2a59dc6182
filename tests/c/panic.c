/* A panic in the library is an answer. Needs a library that was built to panic on demand: see src/ffi/guard.rs. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

int main(int argc, char **argv) {
  mmq_queue *queue, *none = NULL;
  mmq_message *message, *other = NULL;
  char text[100];
  uint64_t number = 42;
  BEGIN(argc, argv);
  OK(mmq_open(path_of("panic"), NULL, &queue));
  OK(mmq_enqueue(queue, "x", 1, NULL));
  OK(mmq_peek(queue, &message));

  setenv("MMQ_TEST_PANIC", "1", 1);
  ANSWERS(MMQ_PANIC, mmq_open(path_of("other"), NULL, &none));
  ANSWERS(MMQ_PANIC, mmq_enqueue(queue, "x", 1, &number));
  ANSWERS(MMQ_PANIC, mmq_dequeue(queue, &other));
  ANSWERS(MMQ_PANIC, mmq_flush(queue));
  CHECK(mmq_options_new() == NULL && mmq_message_data(message) == NULL && mmq_message_len(message) == 0);
  CHECK(mmq_message_seq(message) == UINT64_MAX && number == 42 && none == NULL && other == NULL);
  CHECK(strcmp(mmq_version(), "") == 0 && strcmp(mmq_status_message(MMQ_OK), "") == 0);
  mmq_message_free(message);
  unsetenv("MMQ_TEST_PANIC");

  CHECK(mmq_last_error(text, sizeof text) > 0 && strcmp(text, "a bug in mmq: on purpose") == 0);
  CHECK(*mmq_message_data(message) == 'x');
  mmq_message_free(message);
  OK(mmq_len(queue, &number));
  CHECK(number == 1);
  OK(mmq_close(queue));
  return 0;
}
