/* floor DIRECTORY PROGRAM [ARGUMENT...]: the least that putting a program into a cgroup of its own can cost: a static program that makes
 * the cgroup, writes its own pid and becomes the program. Nothing is checked, recorded or taken away.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char path[4096], pid[16];
	int length, fd;

	if (argc < 3)
		return 2;
	length = snprintf(pid, sizeof pid, "%d", getpid());
	snprintf(path, sizeof path, "%s/floor-%s", argv[1], pid);
	if (mkdir(path, 0755) < 0) {
		perror(path);
		return 125;
	}
	snprintf(path, sizeof path, "%s/floor-%s/cgroup.procs", argv[1], pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, pid, (size_t)length) != length) {
		perror(path);
		return 125;
	}
	close(fd);
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
