/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions of the C test programs: check a condition, and open a device by its name. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with an error that names the condition, unless it is true. */
#define CHECK(condition) do { if (!(condition)) fail(#condition, __FILE__, __LINE__); } while (0)

static void fail(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, strerror(errno));
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *opened = NULL;
	int i;

	CHECK(devices);
	for (i = 0; devices[i] && !opened; i++) {
		if (!strcmp(ibv_get_device_name(devices[i]), name))
			opened = ibv_open_device(devices[i]);
	}
	ibv_free_device_list(devices);
	CHECK(opened);
	return opened;
}
