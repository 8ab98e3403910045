// Errors passed on to the caller.
//
//   RETURN_IF_ERROR(Check(recipe));
//   ASSIGN_OR_RETURN(const auto model, ReadModel(path));
//
// Each is a statement of a function that returns an absl::Status or absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(...) \
  if (absl::Status legoai_status = __VA_ARGS__; !legoai_status.ok()) return legoai_status

// `declaration` takes the value, moved out of the absl::StatusOr that the expression gives.
#define ASSIGN_OR_RETURN(declaration, ...) \
  LEGOAI_ASSIGN_OR_RETURN(LEGOAI_JOIN(legoai_result_, __LINE__), declaration, __VA_ARGS__)

#define LEGOAI_ASSIGN_OR_RETURN(result, declaration, ...) \
  auto result = __VA_ARGS__;                              \
  if (!result.ok()) return std::move(result).status();    \
  declaration = *std::move(result)
#define LEGOAI_JOIN(a, b) LEGOAI_JOIN_EXPANDED(a, b)
#define LEGOAI_JOIN_EXPANDED(a, b) a##b
