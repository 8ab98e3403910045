// Operators that compute nothing: they look at memory, or take it. Pure functions.
#pragma once

#include <string_view>
#include <vector>

namespace legoai::graph {

// Without overloads: "aten::transpose".
const std::vector<std::string_view>& ViewNames();

// Of an operator as a Trace has it, "aten::transpose.int".
bool IsView(std::string_view operator_name);

}  // namespace legoai::graph
