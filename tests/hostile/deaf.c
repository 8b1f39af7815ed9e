/* deaf COUNTER PERIOD: one process that ignores and blocks every signal that can be. */
#include "hostile.h"

int main(int argc, char **argv)
{
	sigset_t all;
	int number;

	hostile_start(argc, argv);
	for (number = 1; number < NSIG; number++)
		signal(number, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (;;) {
		hostile_tick();
		hostile_pause();
	}
}
