// Reads a Hugging Face folder into a model and writes it again: reexport FOLDER OUTPUT [composed]. With the third argument
// config.json is not the one that was read but composed, as for a model of the catalog. What testdata/record_hf_reference.py
// gives to transformers.
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/model/hf_config.h"
#include "proto/status.h"
#include "worker/model/hf_weights.h"

namespace legoai::model {
namespace {

absl::Status Reexport(const std::string& folder, const std::string& output, bool composed) {
  ASSIGN_OR_RETURN(v1::Model model, ReadHfConfig(folder));
  ASSIGN_OR_RETURN(HfWeights weights, HfWeights::Open(folder, model));
  if (composed) model.clear_config_json();
  return ExportHfFolder(model, output, [&](const std::string& name, const std::vector<int64_t>& shape, float* out) {
    return weights.Load(parallel::Unsharded(name, shape), out);
  });
}

}  // namespace
}  // namespace legoai::model

int main(int argc, char** argv) {
  const bool composed = argc == 4 && std::string_view(argv[3]) == "composed";
  if (argc != 3 && !composed) {
    std::fprintf(stderr, "usage: reexport FOLDER OUTPUT [composed]\n");
    return 2;
  }
  const absl::Status status = legoai::model::Reexport(argv[1], argv[2], composed);
  if (!status.ok()) std::fprintf(stderr, "reexport: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
