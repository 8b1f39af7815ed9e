/* counter COUNTER show | wait MORE | still | stop: what a script asks of a hostile program's counter. Not hostile itself.
 *
 * show: prints the ticks so far. wait: returns when there are MORE more than at its start, 1 after a minute. still: 0 if nothing ticks for
 * 300 ms, else 1. stop: everyone who uses the counter ends.
 */
#include "hostile.h"

int main(int argc, char **argv)
{
	uint64_t before, turn;
	char *map[] = { argv[0], argv[1], "0", NULL };

	if (argc < 3)
		return 2;
	hostile_start(3, map);
	before = atomic_load(&hostile_page->ticks);
	if (strcmp(argv[2], "show") == 0) {
		printf("%llu\n", (unsigned long long)before);
		return 0;
	}
	if (strcmp(argv[2], "wait") == 0 && argc > 3) {
		uint64_t more = strtoull(argv[3], NULL, 10);

		for (turn = 0; turn < 12000; turn++) {
			if (atomic_load(&hostile_page->ticks) >= before + more)
				return 0;
			usleep(5000);
		}
		return 1;
	}
	if (strcmp(argv[2], "still") == 0) {
		usleep(300000);
		return atomic_load(&hostile_page->ticks) != before;
	}
	if (strcmp(argv[2], "stop") == 0) {
		atomic_store(&hostile_page->stop, 1);
		syscall(SYS_futex, &hostile_page->stop, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
		return 0;
	}
	return 2;
}
