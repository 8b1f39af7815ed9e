/* bomb COUNTER PERIOD [LIMIT]: doubles until there are LIMIT processes (default 200), and replaces every one of them all the time.
 *
 * All together they fork some 2,000 times a second at most, whatever PERIOD says: a PID 1 that is slow to reap would run out of pids.
 */
#include "hostile.h"

static uint64_t limit = 200;

/* Counted before it exists: so there are never more than LIMIT, whoever is killed. */
static int room_for_one(void)
{
	if (atomic_fetch_add(&hostile_page->live, 1) < limit)
		return 1;
	atomic_fetch_sub(&hostile_page->live, 1);
	return 0;
}

int main(int argc, char **argv)
{
	hostile_start(argc, argv);
	if (argc > 3)
		limit = strtoull(argv[3], NULL, 10);
	if (hostile_period < limit * 500)
		hostile_period = (useconds_t)(limit * 500);
	atomic_fetch_add(&hostile_page->live, 1);
	for (;;) {
		hostile_tick();
		hostile_pause();
		if (room_for_one() && hostile_fork() == 0)
			continue;
		/* The replacement takes over this process's place in the count. */
		if (hostile_fork() > 0)
			_exit(0);
	}
}
