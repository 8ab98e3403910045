// What a test needs, without which it goes no further.
//
//   ASSERT_OK_AND_ASSIGN(const auto model, ReadModel(path));
//
// A statement of a function that returns nothing, as each ASSERT_ of gtest is.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "proto/status.h"

// `declaration` takes the value, moved out of the absl::StatusOr that the expression gives.
#define ASSERT_OK_AND_ASSIGN(declaration, ...) \
  LEGOAI_ASSERT_OK_AND_ASSIGN(LEGOAI_JOIN(legoai_result_, __LINE__), declaration, __VA_ARGS__)

#define LEGOAI_ASSERT_OK_AND_ASSIGN(result, declaration, ...) \
  auto result = __VA_ARGS__;                                  \
  ASSERT_TRUE(result.ok()) << result.status();                \
  declaration = *std::move(result)
