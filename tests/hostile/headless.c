/* headless COUNTER PERIOD: its main thread has exited, so /proc shows a zombie, while another thread runs on. */
#include "hostile.h"

#include <pthread.h>

static void *run_on(void *unused)
{
	for (;;) {
		hostile_tick();
		hostile_pause();
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	hostile_start(argc, argv);
	if (pthread_create(&thread, NULL, run_on, NULL) != 0)
		hostile_fail("pthread_create");
	/* Of this thread alone. */
	syscall(SYS_exit, 0);
	return 125;
}
