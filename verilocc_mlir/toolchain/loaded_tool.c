/* Preloaded (LD_PRELOAD) into a tool of LLVM: the process stops before the tool's main function, with its libraries
   relocated and its static objects made, and from then on is copied for each run. loaded_tools.py is the other side.

   A message on the socket is one run: the working directory and the arguments, each ended by a null byte, with the
   run's three standard streams. A copy makes a session of its own, answers with its process id, and calls main. The
   copies are children of the process that started this one (CLONE_PARENT), which waits for them as for any child. The
   first message is an answer without a question: 0, this process is there. It ends with its socket. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOCKET_VARIABLE "VERILOCC_LOADED_TOOL"
enum { MOST_BYTES = 1 << 17, MOST_ARGUMENTS = 4096, STREAMS = 3 };

typedef int (*main_function)(int, char **, char **);
typedef int (*start_function)(main_function, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static main_function tool_main;
static char message[MOST_BYTES + 1];
static char *arguments[MOST_ARGUMENTS + 1];

static void answer(int socket, int value) {
  if (send(socket, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) _exit(0);
}

static void run(int socket, const int *streams, const char *end, char **environment) {
  int count = 0;
  setsid();
  answer(socket, getpid());
  close(socket);
  for (int stream = 0; stream < STREAMS; stream++) dup2(streams[stream], stream);
  for (char *word = message + strlen(message) + 1; word < end && count < MOST_ARGUMENTS; word += strlen(word) + 1)
    arguments[count++] = word;
  if (chdir(message) != 0) _exit(127);
  exit(tool_main(count, arguments, environment));
}

static int serve(int count, char **unused, char **environment) {
  const char *number = getenv(SOCKET_VARIABLE);
  if (number == NULL) return tool_main(count, unused, environment);
  int socket = atoi(number);
  unsetenv("LD_PRELOAD");
  unsetenv(SOCKET_VARIABLE);
  answer(socket, 0);
  for (;;) {
    int streams[STREAMS] = {-1, -1, -1};
    union {
      struct cmsghdr header;
      char bytes[CMSG_SPACE(sizeof streams)];
    } control;
    struct iovec text = {message, MOST_BYTES};
    struct msghdr question = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(socket, &question, MSG_CMSG_CLOEXEC);
    if (bytes < 0 && errno == EINTR) continue;
    struct cmsghdr *files = CMSG_FIRSTHDR(&question);
    if (bytes <= 0 || files == NULL || files->cmsg_len != CMSG_LEN(sizeof streams)) _exit(0);
    message[bytes] = '\0';
    memcpy(streams, CMSG_DATA(files), sizeof streams);
    long child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) run(socket, streams, message + bytes, environment);
    for (int stream = 0; stream < STREAMS; stream++) close(streams[stream]);
    if (child < 0) answer(socket, -errno);
  }
}

int __libc_start_main(main_function main, int count, char **words, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end) {
  start_function real = (start_function)dlsym(RTLD_NEXT, "__libc_start_main");
  tool_main = main;
  return real(serve, count, words, init, fini, rtld_fini, stack_end);
}
