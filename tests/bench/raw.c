/* raw destroy|freeze DIRECTORY NUMBER QUIET-MS: the bare kernel steps, on NUMBER sleeping processes in a cgroup made in DIRECTORY. Prints
 * microseconds.
 *
 * freeze:  write cgroup.freeze, until `frozen 1`
 * destroy: the same, then write cgroup.kill, until `populated 0`
 *
 * The wait reads cgroup.events and polls it in turn, at 0.1 ms and doubling, since the kernel holds back the event for up to 16 ms.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char leaf[4000];
static int events;

static void fail(const char *what)
{
	perror(what);
	exit(125);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void put(const char *dir, const char *file, const char *value)
{
	char path[4200];
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		fail(path);
	close(fd);
}

static void wait_for(const char *line)
{
	struct timespec pause = { .tv_sec = 0, .tv_nsec = 100000 };
	struct pollfd poll_fd = { .fd = events, .events = POLLPRI };
	char text[256];
	ssize_t length;

	for (;;) {
		length = pread(events, text, sizeof text - 1, 0);
		if (length < 0)
			fail("cgroup.events");
		text[length] = 0;
		if (strstr(text, line))
			return;
		ppoll(&poll_fd, 1, &pause, NULL);
		if (pause.tv_nsec < 500000000)
			pause.tv_nsec *= 2;
	}
}

static void open_events(void)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/cgroup.events", leaf);
	events = open(path, O_RDONLY | O_CLOEXEC);
	if (events < 0)
		fail(path);
}

/* Forked from within the cgroup: moving each would take longer than everything else. */
static void fill(const char *above, long number)
{
	pid_t parent = getpid();

	put(leaf, "cgroup.procs", "0");
	while (number-- > 0) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (getppid() == parent)
				pause();
			_exit(0);
		}
	}
	put(above, "cgroup.procs", "0");
}

int main(int argc, char **argv)
{
	double from, took;
	int destroy;

	if (argc != 5)
		return 2;
	destroy = strcmp(argv[1], "destroy") == 0;
	snprintf(leaf, sizeof leaf, "%s/raw-%d", argv[2], getpid());
	if (mkdir(leaf, 0755) < 0)
		fail(leaf);
	fill(argv[2], atol(argv[3]));
	open_events();
	usleep((useconds_t)atol(argv[4]) * 1000);
	from = now_us();
	put(leaf, "cgroup.freeze", "1");
	wait_for("frozen 1");
	took = now_us() - from;
	put(leaf, "cgroup.kill", "1");
	wait_for("populated 0");
	if (destroy)
		took = now_us() - from;
	while (wait(NULL) > 0)
		;
	close(events);
	while (rmdir(leaf) < 0)
		usleep(1000);
	printf("%.1f\n", took);
	return 0;
}
