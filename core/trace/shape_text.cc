#include "core/trace/shape_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace legoai::graph {
namespace {

constexpr int kShownOfList = 2;  // tensors: an optimizer takes hundreds

// The tensors of one side of an operator. `shapes`: text by geometry.
class ShapeList {
 public:
  ShapeList(const Trace& trace, const std::vector<std::string>& shapes, std::string* text)
      : trace_(trace), shapes_(shapes), text_(text) {}
  ~ShapeList() { EndPlace(); }

  void operator()(int place, uint32_t value) {
    if (place != place_) EndPlace();
    place_ = place;
    if (++of_place_ > kShownOfList) return;
    absl::StrAppend(text_, separator_, shapes_[trace_.values[value].geometry]);
    separator_ = " ";
  }

 private:
  void EndPlace() {
    if (of_place_ > kShownOfList) absl::StrAppend(text_, " and ", of_place_ - kShownOfList, " more");
    of_place_ = 0;
  }

  const Trace& trace_;
  const std::vector<std::string>& shapes_;
  std::string* text_;
  const char* separator_ = "";
  int place_ = -1, of_place_ = 0;
};

}  // namespace

ShapeText::ShapeText(const Trace& trace) : trace_(&trace) {
  for (const Geometry& geometry : trace.geometries) {
    shapes_.push_back(
        absl::StrCat(absl::AsciiStrToLower(v1::DType_Name(geometry.dtype)), "[", absl::StrJoin(geometry.sizes, ","), "]"));
  }
}

std::string ShapeText::Of(const InstructionView& op) const {
  std::string text;
  op.ForEachInput(ShapeList(*trace_, shapes_, &text));
  if (op.result_count() > 0) {
    absl::StrAppend(&text, " -> ");
    op.ForEachResult(ShapeList(*trace_, shapes_, &text));
  }
  return text;
}

}  // namespace legoai::graph
