/* The passes once more, in float. */
#define SINGLE
#include "kernel.c"
