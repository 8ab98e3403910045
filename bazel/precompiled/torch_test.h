// torch.h for tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bazel/precompiled/torch.h"
