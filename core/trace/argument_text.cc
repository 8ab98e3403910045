#include "core/trace/argument_text.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace legoai::graph {
namespace {

struct ConstantText {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.17g", value);
    return absl::StrCat(buffer, "f");
  }
  std::string operator()(const std::string& value) const { return absl::StrCat("\"", value, "\""); }
  std::string operator()(DeviceConstant) const { return "device"; }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    return absl::StrCat("[", absl::StrJoin(values, ",", [](std::string* out, T value) { out->append(ConstantText()(value)); }),
                        "]");
  }
};

}  // namespace

std::string TextOf(const Geometry& geometry) {
  std::string dtype = v1::DType_Name(geometry.dtype);
  std::string text =
      absl::StrCat(dtype, "[", absl::StrJoin(geometry.sizes, ","), "]{", absl::StrJoin(geometry.strides, ","), "}");
  if (geometry.offset != 0) absl::StrAppend(&text, "+", geometry.offset);
  return text;
}

std::string TextOf(const Constant& constant) { return std::visit(ConstantText(), constant); }

}  // namespace legoai::graph
