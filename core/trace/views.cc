#include "core/trace/views.h"

#include <algorithm>

namespace legoai::graph {

const std::vector<std::string_view>& ViewNames() {
  static const auto* const names = new std::vector<std::string_view>{
      "aten::view", "aten::_unsafe_view", "aten::_reshape_alias", "aten::reshape", "aten::as_strided", "aten::t", "aten::t_",
      "aten::transpose", "aten::transpose_", "aten::permute", "aten::expand", "aten::expand_as", "aten::slice", "aten::select",
      "aten::narrow", "aten::split", "aten::split_with_sizes", "aten::chunk", "aten::unbind", "aten::squeeze", "aten::squeeze_",
      "aten::unsqueeze", "aten::unsqueeze_", "aten::detach", "aten::detach_", "aten::alias", "aten::diagonal", "aten::flatten",
      "aten::unflatten", "aten::lift_fresh", "aten::view_as", "aten::view_as_real", "aten::view_as_complex", "aten::unfold",
      "aten::movedim", "aten::set_", "aten::resize_", "aten::empty", "aten::empty_like", "aten::empty_strided",
      "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted"};
  return *names;
}

bool IsView(std::string_view operator_name) {
  const size_t scope = operator_name.find("::");
  const std::string_view base = operator_name.substr(0, operator_name.find('.', scope == std::string_view::npos ? 0 : scope));
  return std::find(ViewNames().begin(), ViewNames().end(), base) != ViewNames().end();
}

}  // namespace legoai::graph
