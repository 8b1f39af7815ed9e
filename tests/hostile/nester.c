/* nester COUNTER PERIOD [WIDTH]: makes child cgroups in its own, grandchildren in these (default 3 each), and a chain that with every link
 * moves to another one. Where it may not make any, it is a plain chain; `live` is the number of cgroups that it made.
 */
#include "hostile.h"

enum { MAX_WIDTH = 16 };

static char places[MAX_WIDTH * (MAX_WIDTH + 1)][4200];
static unsigned int count, next_place;

/* Where cgroup2 is mounted: the fifth field of the line whose file system type is cgroup2. */
static int find_mount(char *mount, size_t size)
{
	char line[8192], point[4096];
	FILE *file = fopen("/proc/self/mountinfo", "re");

	while (file && fgets(line, sizeof line, file)) {
		if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1) {
			snprintf(mount, size, "%s", point);
			fclose(file);
			return 1;
		}
	}
	if (file)
		fclose(file);
	return 0;
}

static int find_own(char *own, size_t size)
{
	char line[4096], mount[2048];
	FILE *file = fopen("/proc/self/cgroup", "re");

	while (file && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		/* Not in the root: that is nobody's own, and a test that forgot to make a cgroup would litter the machine. */
		if (strncmp(line, "0::", 3) == 0 && line[3] == '/' && line[4] && find_mount(mount, sizeof mount)) {
			snprintf(own, size, "%s%s", mount, line + 3);
			fclose(file);
			return 1;
		}
	}
	if (file)
		fclose(file);
	return 0;
}

static int make(const char *above, unsigned int number)
{
	snprintf(places[count], sizeof places[count], "%s/nested-%u", above, number);
	if (mkdir(places[count], 0755) < 0 && errno != EEXIST)
		return 0;
	count++;
	atomic_fetch_add(&hostile_page->live, 1);
	return 1;
}

static void move_on(void)
{
	char file[4300];
	int fd;

	if (count == 0)
		return;
	snprintf(file, sizeof file, "%s/cgroup.procs", places[next_place++ % count]);
	fd = open(file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* Refused moves do not end it: then it stays where it is. */
	if (write(fd, "0", 1) < 0)
		errno = 0;
	close(fd);
}

int main(int argc, char **argv)
{
	unsigned int width = 3, outer, inner;
	char own[4096];

	hostile_start(argc, argv);
	if (argc > 3)
		width = (unsigned int)strtoul(argv[3], NULL, 10);
	if (width > MAX_WIDTH)
		width = MAX_WIDTH;
	if (find_own(own, sizeof own)) {
		for (outer = 0; outer < width && make(own, outer); outer++) {
			const char *above = places[count - 1];

			for (inner = 0; inner < width && make(above, inner); inner++)
				;
		}
	}
	move_on();
	hostile_chain(move_on);
}
