/* pairs ROUNDS QUIET-MS CLEAN COMMAND... [:: COMMAND...]: runs one or two commands in turn and prints the time of each run, a round a line,
 * in microseconds, from before the start to the end of the process. QUIET-MS is slept before each run. The empty cgroups floor-* beneath
 * CLEAN ("-": nowhere) are removed between the rounds, outside of what is measured. Who is first changes with every round.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static posix_spawn_file_actions_t quiet;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double measure(char **command, long rest_ms)
{
	double from;
	int status;
	pid_t pid;

	if (rest_ms > 0)
		usleep((useconds_t)rest_ms * 1000);
	from = now_us();
	errno = posix_spawnp(&pid, command[0], &quiet, NULL, command, environ);
	if (errno != 0) {
		perror(command[0]);
		exit(125);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "pairs: %s ended with status %#x\n", command[0], status);
		exit(125);
	}
	return now_us() - from;
}

static void clean(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && strncmp(entry->d_name, "floor-", 6) == 0)
			unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
}

int main(int argc, char **argv)
{
	char **first = argv + 4, **second = argv + 4;
	long rounds, rest;

	while (*second && strcmp(*second, "::") != 0)
		second++;
	if (argc < 5 || second == first) {
		fprintf(stderr, "usage: pairs ROUNDS QUIET-MS CLEAN COMMAND... [:: COMMAND...]\n");
		return 2;
	}
	if (*second)
		*second++ = NULL;
	rounds = atol(argv[1]);
	rest = atol(argv[2]);
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	for (long round = 0; round < rounds; round++) {
		double a = 0, b = 0;

		if (*second && round % 2 == 1)
			b = measure(second, rest);
		a = measure(first, rest);
		if (*second && round % 2 == 0)
			b = measure(second, rest);
		if (*second)
			printf("%.1f %.1f\n", a, b);
		else
			printf("%.1f\n", a);
		if (strcmp(argv[3], "-") != 0)
			clean(argv[3]);
	}
	return 0;
}
