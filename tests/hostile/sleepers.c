/* sleepers COUNTER PERIOD [NUMBER]: NUMBER processes (default 100) beside the first, each of which ticks once and sleeps. */
#include "hostile.h"

int main(int argc, char **argv)
{
	unsigned long number = 100;

	hostile_start(argc, argv);
	if (argc > 3)
		number = strtoul(argv[3], NULL, 10);
	while (number-- > 0) {
		if (hostile_fork() == 0)
			break;
		hostile_pause();
	}
	hostile_tick();
	hostile_sleep();
}
