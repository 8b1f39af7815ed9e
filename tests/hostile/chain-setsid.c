/* chain-setsid COUNTER PERIOD: the chain, every link in a POSIX session of its own. */
#include "hostile.h"

static void own_session(void)
{
	setsid();
}

int main(int argc, char **argv)
{
	hostile_start(argc, argv);
	hostile_chain(own_session);
}
