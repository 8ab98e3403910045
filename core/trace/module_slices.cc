#include "core/trace/module_slices.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"

namespace legoai::graph {
namespace {

// "model.layers.3.mlp": "model", "model.layers.3" and "model.layers.3.mlp". A number belongs to the name before it.
std::vector<std::string> PathsTo(const std::string& module) {
  std::vector<std::string> paths;
  for (size_t end = 0; end < module.size();) {
    end = std::min(module.find('.', end + 1), module.size());
    const bool number_follows = end + 1 < module.size() && std::isdigit(static_cast<unsigned char>(module[end + 1])) != 0;
    if (!number_follows) paths.push_back(module.substr(0, end));
  }
  return paths;
}

bool Same(const ModuleSlice& a, const ModuleSlice& b) { return a.module == b.module && a.name == b.name; }

}  // namespace

Phase SpanPhase(Phase phase) { return phase == Phase::kRecompute ? Phase::kBackward : phase; }

std::string SpanName(Phase phase, int32_t microbatch) {
  return absl::StrCat(PhaseName(phase), microbatch >= 0 ? absl::StrCat(" of microbatch ", microbatch) : "");
}

void ModuleNesting::Add(const std::string& span_name, Phase span_phase, Phase phase, const std::string* module, int64_t start,
                        int64_t finish) {
  std::vector<ModuleSlice> path = {{span_name, "", span_phase}};
  if (module != nullptr) {
    if (phase == Phase::kRecompute) path.push_back({"recompute", "", phase});
    const auto [found, fresh] = paths_.try_emplace(*module);
    if (fresh) found->second = PathsTo(*module);
    size_t outer = 0;  // characters of the module around
    for (const std::string& inner : found->second) {
      path.push_back({inner.substr(outer), inner, phase});
      outer = inner.size() + 1;
    }
  }
  Open(path, start, finish);
}

void ModuleNesting::Open(const std::vector<ModuleSlice>& path, int64_t start, int64_t finish) {
  size_t same = 0;
  while (same < path.size() && same < open_.size() && Same(slices_[open_[same]], path[same])) ++same;
  open_.resize(same);
  for (size_t depth = same; depth < path.size(); ++depth) {
    open_.push_back(slices_.size());
    slices_.push_back(path[depth]);
    slices_.back().start = start;
  }
  for (size_t index : open_) slices_[index].finish = finish;
}

std::vector<ModuleSlice> ModuleNesting::Take() {
  open_.clear();
  return std::move(slices_);
}

}  // namespace legoai::graph
