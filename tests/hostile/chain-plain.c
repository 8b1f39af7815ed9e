/* chain-plain COUNTER PERIOD: a process that is gone before anyone has looked at it, and leaves a child in its place. */
#include "hostile.h"

int main(int argc, char **argv)
{
	hostile_start(argc, argv);
	hostile_chain(NULL);
}
