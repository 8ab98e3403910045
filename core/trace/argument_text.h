// Constants and geometries as text, exact: what differs reads differently. Pure functions.
#pragma once

#include <string>

#include "core/trace/trace.h"

namespace legoai::graph {

// "FLOAT32[2,3]{3,1}+4": type, sizes, strides, and an offset other than 0.
std::string TextOf(const Geometry& geometry);
// "2", "2f" (a double), "true", "[1,2]", "None".
std::string TextOf(const Constant& constant);

}  // namespace legoai::graph
