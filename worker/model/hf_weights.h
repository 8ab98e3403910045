// Reads and writes weights as a Hugging Face folder. Torch-free. Thread-safety: pure functions.
//
// Parameters have Hugging Face's names, with two differences for GPT-2, whose Conv1D layers store [in, out]: all our weights are
// [out, in], and attn.c_attn is split into attn.q_proj, attn.k_proj and attn.v_proj. Both are undone at export.
//
// Errors: FieldError with field "weights: NAME" naming the tensor and both shapes if weights do not fit the model, a tensor is
// missing, or the folder has one that the model does not.
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

// One tensor of a Hugging Face folder and the parameters in it.
struct HfTensor {
  std::string name;            // "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // [32, 96]
  bool transposed = false;     // stored as [in, out]
  // Our names and shapes; several parameters are concatenated along the stored tensor's last dimension, in equal parts.
  std::vector<std::string> parameters;
  std::vector<int64_t> parameter_shape;  // of each one
};

// All tensors of a model, tied ones once, in transformers' order.
std::vector<HfTensor> HfTensors(const v1::Model& model);

class HfWeights {
 public:
  // Opens `path` (a folder or a .safetensors file) and checks every name and shape against the model. Also accepted: a tied
  // lm_head equal to the embedding, buffers that older versions saved, and GPT-2 names without "transformer.", as in the released
  // files.
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

// Copies one whole parameter (our name) to `out`, fp32, row-major.
using ParameterSource = std::function<absl::Status(const std::string& name, const std::vector<int64_t>& shape, float* out)>;

// Writes config.json and model.safetensors (or several files with an index) in fp32, one tensor in memory at a time. The weights
// are written first and config.json last: a folder with a config.json is complete. `done` is called as bytes are written.
absl::Status ExportHfFolder(const v1::Model& model, const std::string& folder, const ParameterSource& source,
                            const checkpoint::BytesDone& done = nullptr);

}  // namespace legoai::model
