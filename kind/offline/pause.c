/* The first process of each Pod. It reaps orphaned processes, and ends on SIGINT or SIGTERM. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }

static void bury(int signal) {
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, bury);
    for (;;) pause();
}
