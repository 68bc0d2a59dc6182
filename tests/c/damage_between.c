/* Goes into examples/recovery.c and .cpp by LD_PRELOAD: when the parent opens the queue that its first child has left, one message
 * is not what it was. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mmq.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pid_t parent;
static int is_done;

__attribute__((constructor)) static void remember_the_parent(void) { parent = getpid(); }

static void damage(const char *dir, const char *message) {
  static char bytes[16 << 20];
  char path[4096], *place;
  ssize_t len;
  int file;
  snprintf(path, sizeof path, "%s/segment-00000000", dir);
  if ((file = open(path, O_RDWR)) < 0) _exit(99);
  if ((len = pread(file, bytes, sizeof bytes, 0)) <= 0) _exit(99);
  if (!(place = memmem(bytes, (size_t)len, message, strlen(message)))) _exit(99);
  if (pwrite(file, "R", 1, place - bytes) != 1) _exit(99);
  close(file);
}

mmq_status mmq_open(const char *dir, const mmq_options *options, mmq_queue **out) {
  mmq_status (*real)(const char *, const mmq_options *, mmq_queue **);
  *(void **)&real = dlsym(RTLD_NEXT, "mmq_open");
  if (getpid() == parent && !is_done) {
    is_done = 1;
    damage(dir, "round 0, message 12345");
  }
  return real(dir, options, out);
}
