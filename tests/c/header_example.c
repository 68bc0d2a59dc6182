/* The program in the overview of mmq.h; tests/header.rs puts it there. */
#include <mmq.h>
#include <stdio.h>

int main(void) {
  mmq_queue *queue;
  mmq_message *message;
  if (mmq_open("spool", NULL, &queue) != MMQ_OK) return 1;
  if (mmq_enqueue(queue, "hello", 5, NULL) != MMQ_OK) return 1;
  while (mmq_dequeue(queue, &message) == MMQ_OK) {
    printf("%.*s\n", (int)mmq_message_len(message), (const char *)mmq_message_data(message));
    mmq_message_free(message);
  }
  return mmq_close(queue) == MMQ_OK ? 0 : 1;
}
