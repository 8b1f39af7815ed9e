/* chain-nohup COUNTER PERIOD: the chain, deaf to SIGHUP: the end of its terminal or of its POSIX session's leader does not end it. */
#include "hostile.h"

int main(int argc, char **argv)
{
	signal(SIGHUP, SIG_IGN);
	hostile_start(argc, argv);
	hostile_chain(NULL);
}
