/* The program in the overview of mmq.h; tests/header.rs puts it there. */
#include <mmq.h>
#include <stdio.h>

int main(void) {
  mmq_queue *queue;
  mmq_message *message;
  mmq_status status;
  char text[512];
  if (mmq_open("spool", NULL, &queue) != MMQ_OK) return 1;
  if (mmq_enqueue(queue, "hello", 5, NULL) != MMQ_OK) return 1;
  while ((status = mmq_dequeue(queue, &message)) == MMQ_OK || status == MMQ_GAP) {
    if (status == MMQ_GAP) { // messages are missing, for example damaged; the next read continues behind them
      mmq_last_error(text, sizeof text);
      fprintf(stderr, "%s\n", text);
      continue;
    }
    printf("%.*s\n", (int)mmq_message_len(message), (const char *)mmq_message_data(message));
    mmq_message_free(message);
  }
  if (status != MMQ_EMPTY) return 1; // mmq_last_error says why
  return mmq_close(queue) == MMQ_OK ? 0 : 1;
}
