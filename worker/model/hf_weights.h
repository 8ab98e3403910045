// Weights from and to a folder in Hugging Face's form. Torch-free. Thread-safety: pure functions.
//
// Parameters have Hugging Face's names, with two differences for GPT-2, whose Conv1D layers store [in, out]: all our weights are
// [out, in], and attn.c_attn is split into attn.q_proj, attn.k_proj and attn.v_proj. Both are undone at export.
//
// Errors: FieldError with field "weights: NAME" that names the tensor and both shapes where weights do not fit the model, a
// tensor is missing, or the folder holds one that the model has no place for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/safetensors.h"
#include "core/mesh/shard_spec.h"
#include "proto/legoai/v1/model.pb.h"

namespace legoai::model {

// One tensor of a Hugging Face folder and our parameters in it.
struct HfTensor {
  std::string name;            // "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // [32, 96]
  bool transposed = false;     // stored as [in, out]
  // Names and shapes of ours; several lie side by side along the stored tensor's last dimension, in equal parts.
  std::vector<std::string> parameters;
  std::vector<int64_t> parameter_shape;  // of each
};

// All tensors of a model, tied ones once, in the order in which transformers lists them.
std::vector<HfTensor> HfTensors(const v1::Model& model);

class HfWeights {
 public:
  // Opens `path` (a folder or a .safetensors file) and checks every name and shape against the model. Tolerated besides: a
  // tied lm_head equal to the embedding, buffers that older versions saved, and GPT-2 names without "transformer.", as the
  // released files have them.
  static absl::StatusOr<HfWeights> Open(const std::string& path, const v1::Model& model);

  // Reads the part that `spec` names, converted to fp32, row-major. `out` holds spec.Elements().
  absl::Status Load(const parallel::ShardSpec& spec, float* out) const;

 private:
  HfWeights(checkpoint::SafetensorsReader reader, std::vector<HfTensor> tensors);
  // Adds the stored names and checks them; part of Open.
  absl::Status Check(const v1::Model& model);

  struct Place {
    std::string stored;  // name in the file
    bool transposed = false;
    int64_t first = 0;  // along the stored tensor's last dimension
  };
  checkpoint::SafetensorsReader reader_;
  std::vector<HfTensor> tensors_;
  std::vector<std::pair<std::string, Place>> places_;  // by parameter, sorted
};

// Gives all of one parameter (our name), fp32, row-major, into `out`.
using ParameterSource = std::function<absl::Status(const std::string& name, const std::vector<int64_t>& shape, float* out)>;

// Writes config.json and model.safetensors (or several files with an index) in fp32, one tensor in memory at a time. The weights
// come first and config.json last: a folder with a config.json is whole. `done` is told of bytes as they are written.
absl::Status ExportHfFolder(const v1::Model& model, const std::string& folder, const ParameterSource& source,
                            const checkpoint::BytesDone& done = nullptr);

}  // namespace legoai::model
