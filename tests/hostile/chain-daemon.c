/* chain-daemon COUNTER PERIOD: every link makes itself a daemon: a second fork, a POSIX session of its own, no descriptor left open. */
#include "hostile.h"

static void become_daemon(void)
{
	setsid();
	if (hostile_fork() > 0)
		_exit(0);
	if (chdir("/") < 0)
		_exit(125);
	close(0);
	close(1);
	close(2);
}

int main(int argc, char **argv)
{
	hostile_start(argc, argv);
	hostile_chain(become_daemon);
}
