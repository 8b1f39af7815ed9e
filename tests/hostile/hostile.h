/* What the hostile programs have in common.
 *
 * Each is called as PROGRAM COUNTER PERIOD [...]: COUNTER is a file that everyone maps, PERIOD a link's life or a pause in microseconds.
 * Whatever such a program is at the moment, it adds to `ticks`; so a number that stands still is a program that has ended. To be safe
 * when a test dies, everything ends by itself once `stop` is set or the deadline has passed.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

enum { HOSTILE_SECONDS = 180, HOSTILE_PAGE = 4096, HOSTILE_CROWD = 6000 };

/* The layout is known to tests/src/lab/hostile.rs too. */
struct hostile_page {
	_Atomic uint64_t ticks;    /* links begun, or turns of a loop */
	_Atomic uint64_t live;     /* where a program bounds itself: processes counted in and not out */
	_Atomic uint64_t deadline; /* CLOCK_BOOTTIME, seconds; 0 until the first program sets it */
	_Atomic uint32_t stop;     /* not 0: everyone ends; a futex */
};

static struct hostile_page *hostile_page;
static useconds_t hostile_period;

static uint64_t hostile_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec;
}

static void hostile_fail(const char *what)
{
	perror(what);
	_exit(125);
}

/* Maps the counter, making it where there is none. */
static inline void hostile_start(int argc, char **argv)
{
	uint64_t unset = 0;
	int fd;

	if (argc < 3) {
		fprintf(stderr, "usage: %s COUNTER PERIOD-IN-MICROSECONDS [...]\n", argv[0]);
		_exit(2);
	}
	hostile_period = (useconds_t)strtoul(argv[2], NULL, 10);
	fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || ftruncate(fd, HOSTILE_PAGE) < 0)
		hostile_fail(argv[1]);
	hostile_page = mmap(NULL, HOSTILE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (hostile_page == MAP_FAILED)
		hostile_fail("mmap");
	close(fd);
	atomic_compare_exchange_strong(&hostile_page->deadline, &unset, hostile_now() + HOSTILE_SECONDS);
}

/* One more sign of life. Does not return when it is time to end. */
static inline void hostile_tick(void)
{
	atomic_fetch_add(&hostile_page->ticks, 1);
	if (atomic_load(&hostile_page->stop) != 0 || hostile_now() >= atomic_load(&hostile_page->deadline))
		_exit(0);
}

/* Links leave zombies behind, and a PID 1 on a busy machine may be slow to reap: a machine that runs out of pids tests nothing. So in a crowd
 * everyone lives a little longer, and goes on ticking. (sysinfo counts all, also beyond our pid namespace.)
 */
static inline int hostile_crowded(void)
{
	struct sysinfo machine;

	return sysinfo(&machine) == 0 && machine.procs > HOSTILE_CROWD;
}

static inline void hostile_pause(void)
{
	if (hostile_period == 0)
		return;
	usleep(hostile_period);
	while (hostile_crowded()) {
		hostile_tick();
		usleep(2000);
	}
}

/* Sleeps until it is time to end, without waking up in between. */
static inline void hostile_sleep(void)
{
	for (;;) {
		uint64_t now = hostile_now(), deadline = atomic_load(&hostile_page->deadline);
		struct timespec rest = { .tv_sec = deadline > now ? (time_t)(deadline - now) : 0, .tv_nsec = 0 };

		if (atomic_load(&hostile_page->stop) != 0 || rest.tv_sec == 0)
			_exit(0);
		syscall(SYS_futex, &hostile_page->stop, FUTEX_WAIT, 0, &rest, NULL, 0);
	}
}

/* A fork that does not give up: a limit on processes must not end a chain. 0 in the child. */
static inline pid_t hostile_fork(void)
{
	pid_t pid;

	while ((pid = fork()) < 0) {
		hostile_tick();
		usleep(1000);
	}
	return pid;
}

/* The plain chain: every link lives for a period, then leaves its place to a child. Each link calls `at_birth` first, if there is one. */
static inline void hostile_chain(void (*at_birth)(void))
{
	for (;;) {
		hostile_tick();
		hostile_pause();
		if (hostile_fork() > 0)
			_exit(0);
		if (at_birth)
			at_birth();
	}
}

#endif
