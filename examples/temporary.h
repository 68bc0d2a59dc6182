/* A temporary directory for the examples, or the one that MMQ_EXAMPLE_DIR names, which is kept. A
 * real program names a directory of its own. */
#ifndef MMQ_EXAMPLES_TEMPORARY_H
#define MMQ_EXAMPLES_TEMPORARY_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char temporary_dir[] = "/tmp/mmq-example-XXXXXX";

static inline void remove_temporary_dir(void) {
  char path[512];
  struct dirent *file;
  DIR *dir = getenv("MMQ_EXAMPLE_DIR") ? NULL : opendir(temporary_dir);
  if (!dir) return;
  while ((file = readdir(dir)) != NULL) {
    snprintf(path, sizeof path, "%s/%s", temporary_dir, file->d_name);
    unlink(path);
  }
  closedir(dir);
  rmdir(temporary_dir);
}

/* Makes the directory. The caller calls remove_temporary_dir at the end. */
static inline const char *make_temporary_dir(void) {
  if (getenv("MMQ_EXAMPLE_DIR")) return getenv("MMQ_EXAMPLE_DIR");
  if (!mkdtemp(temporary_dir)) {
    perror("mkdtemp");
    exit(1);
  }
  return temporary_dir;
}

#endif
