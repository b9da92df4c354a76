/* Identifies the sources of this library; `SOURCES` is defined by the build. */
#include "simd.h"

API const char *sources(void) { return SOURCES; }
