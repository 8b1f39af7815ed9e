/* chain-setsid-once COUNTER PERIOD: leaves its POSIX session and process group at the start, then the chain. */
#include "hostile.h"

int main(int argc, char **argv)
{
	hostile_start(argc, argv);
	/* A group's leader cannot. */
	if (hostile_fork() > 0)
		_exit(0);
	setsid();
	hostile_chain(NULL);
}
