/* What the C tests share: checks that say where they failed, directories of their own, messages that can be recognised. */
#ifndef MMQ_TEST_CHECK_H
#define MMQ_TEST_CHECK_H

#include <mmq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      char check_text[512];                                                          \
      mmq_last_error(check_text, sizeof check_text);                                 \
      fprintf(stderr, "%s:%d: not so: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, check_text); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

/* The call answers that status. */
#define ANSWERS(status, call)                                                        \
  do {                                                                               \
    mmq_status check_status = (call);                                                \
    if (check_status != (status)) {                                                  \
      char check_text[512];                                                          \
      mmq_last_error(check_text, sizeof check_text);                                 \
      fprintf(stderr, "%s:%d: %s answers %d (%s), not %s\n  last error: %s\n", __FILE__, __LINE__, #call, \
              (int)check_status, mmq_status_message(check_status), #status, check_text); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

#define OK(call) ANSWERS(MMQ_OK, call)

static const char *check_root = ".";

/* A path in the directory given to the program; four are usable at a time. */
static inline const char *path_of(const char *name) {
  static char paths[4][4096];
  static unsigned next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", check_root, name);
  return path;
}

/* The byte at a place of a message, from its number and length. */
static inline unsigned char byte_of(unsigned long long number, size_t len, size_t at) {
  return (unsigned char)((number * 131u + len * 7u + at * 31u + (at >> 8)) & 0xff);
}

static inline void fill(unsigned char *bytes, unsigned long long number, size_t len) {
  size_t at;
  for (at = 0; at < len; at++) bytes[at] = byte_of(number, len, at);
}

static inline int holds(const unsigned char *bytes, unsigned long long number, size_t len) {
  size_t at;
  for (at = 0; at < len; at++) {
    if (bytes[at] != byte_of(number, len, at)) return 0;
  }
  return 1;
}

#define BEGIN(argc, argv)                  \
  do {                                     \
    if ((argc) > 1) check_root = (argv)[1]; \
  } while (0)

#endif
