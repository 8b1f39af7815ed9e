/* chain-setpgid COUNTER PERIOD: the chain, every link in a process group of its own: no group can be signalled. */
#include "hostile.h"

static void own_group(void)
{
	setpgid(0, 0);
}

int main(int argc, char **argv)
{
	hostile_start(argc, argv);
	hostile_chain(own_group);
}
