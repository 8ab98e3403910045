#include "worker/model/hf_weights.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/tensor_layout.h"
#include "core/model/hf_config.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::model {
namespace {

using checkpoint::Rectangle;
using checkpoint::TensorInfo;

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

HfTensor Plain(std::string name, std::vector<int64_t> shape) { return {name, shape, false, {name}, shape}; }

// A Conv1D of GPT-2, [in, out], with its bias; `parts` are the modules of ours that it holds, equal in size.
void AddConv1d(const std::string& parent, const std::string& name, std::vector<std::string> parts, int64_t in, int64_t out,
               std::vector<HfTensor>* all) {
  const auto count = static_cast<int64_t>(parts.size());
  for (const std::string kind : {"weight", "bias"}) {
    HfTensor tensor{absl::StrCat(parent, name, ".", kind), {out}, kind == "weight", {}, {out / count}};
    if (kind == "weight") {
      tensor.shape = {in, out};
      tensor.parameter_shape = {out / count, in};
    }
    for (const std::string& part : parts) tensor.parameters.push_back(absl::StrCat(parent, part, ".", kind));
    all->push_back(std::move(tensor));
  }
}

std::vector<HfTensor> LlamaFamilyTensors(const v1::Model& m) {
  const int64_t dim = m.hidden_size(), inner = m.intermediate_size();
  const int64_t width = m.num_attention_heads() * m.head_dim(), kv_width = m.num_key_value_heads() * m.head_dim();
  std::vector<HfTensor> all = {Plain("model.embed_tokens.weight", {m.vocab_size(), dim})};
  for (int64_t i = 0; i < m.num_hidden_layers(); ++i) {
    const std::string block = absl::StrCat("model.layers.", i, ".");
    for (const auto& [projection, rows] :
         {std::pair("q_proj", width), std::pair("k_proj", kv_width), std::pair("v_proj", kv_width)}) {
      all.push_back(Plain(absl::StrCat(block, "self_attn.", projection, ".weight"), {rows, dim}));
      if (m.qkv_bias()) all.push_back(Plain(absl::StrCat(block, "self_attn.", projection, ".bias"), {rows}));
    }
    all.push_back(Plain(block + "self_attn.o_proj.weight", {dim, width}));
    if (m.qk_norm()) {
      all.push_back(Plain(block + "self_attn.q_norm.weight", {m.head_dim()}));
      all.push_back(Plain(block + "self_attn.k_norm.weight", {m.head_dim()}));
    }
    all.push_back(Plain(block + "mlp.gate_proj.weight", {inner, dim}));
    all.push_back(Plain(block + "mlp.up_proj.weight", {inner, dim}));
    all.push_back(Plain(block + "mlp.down_proj.weight", {dim, inner}));
    all.push_back(Plain(block + "input_layernorm.weight", {dim}));
    all.push_back(Plain(block + "post_attention_layernorm.weight", {dim}));
    if (m.architecture() == v1::GEMMA2) {
      all.push_back(Plain(block + "pre_feedforward_layernorm.weight", {dim}));
      all.push_back(Plain(block + "post_feedforward_layernorm.weight", {dim}));
    }
  }
  all.push_back(Plain("model.norm.weight", {dim}));
  if (!m.tie_word_embeddings()) all.push_back(Plain("lm_head.weight", {m.vocab_size(), dim}));
  return all;
}

std::vector<HfTensor> Gpt2Tensors(const v1::Model& m) {
  const int64_t dim = m.hidden_size(), inner = m.intermediate_size();
  std::vector<HfTensor> all = {Plain("transformer.wte.weight", {m.vocab_size(), dim}),
                               Plain("transformer.wpe.weight", {m.max_position_embeddings(), dim})};
  const auto norm = [&](const std::string& name) {
    all.push_back(Plain(name + ".weight", {dim}));
    all.push_back(Plain(name + ".bias", {dim}));
  };
  const int64_t kv = m.num_key_value_heads() * m.head_dim();
  for (int64_t i = 0; i < m.num_hidden_layers(); ++i) {
    const std::string block = absl::StrCat("transformer.h.", i, ".");
    norm(block + "ln_1");
    if (kv == dim) {
      AddConv1d(block, "attn.c_attn", {"attn.q_proj", "attn.k_proj", "attn.v_proj"}, dim, 3 * dim, &all);
    } else {
      AddConv1d(block, "attn.q_attn", {"attn.q_proj"}, dim, dim, &all);
      AddConv1d(block, "attn.kv_attn", {"attn.k_proj", "attn.v_proj"}, dim, 2 * kv, &all);
    }
    AddConv1d(block, "attn.c_proj", {"attn.c_proj"}, dim, dim, &all);
    if (!m.parallel_block()) norm(block + "ln_2");
    AddConv1d(block, "mlp.c_fc", {"mlp.c_fc"}, dim, inner, &all);
    AddConv1d(block, "mlp.c_proj", {"mlp.c_proj"}, inner, dim, &all);
  }
  norm("transformer.ln_f");
  if (!m.tie_word_embeddings()) all.push_back(Plain("lm_head.weight", {m.vocab_size(), dim}));
  return all;
}

// What older versions of transformers saved beside the parameters.
bool IsKnownBuffer(const std::string& name) {
  return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias") ||
         absl::EndsWith(name, ".rotary_emb.inv_freq");
}

float FromBfloat16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// `count` elements of `dtype` at `data` (of any alignment), element i to out[to(i)].
template <class Position>
void Convert(const TensorInfo& info, const char* data, int64_t count, float* out, Position to) {
  for (int64_t i = 0; i < count; ++i) {
    if (info.dtype == v1::FLOAT32) {
      std::memcpy(out + to(i), data + 4 * i, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, 2);
    if (info.dtype == v1::BFLOAT16) {
      out[to(i)] = FromBfloat16(bits);
    } else {
      _Float16 half;
      std::memcpy(&half, &bits, 2);
      out[to(i)] = static_cast<float>(half);
    }
  }
}

absl::Status WeightsError(const std::string& tensor, const std::string& value, const std::string& remedy) {
  return FieldError(absl::StrCat("weights: ", tensor), value, remedy);
}

}  // namespace

std::vector<HfTensor> HfTensors(const v1::Model& model) {
  return model.architecture() == v1::GPT2 ? Gpt2Tensors(model) : LlamaFamilyTensors(model);
}

HfWeights::HfWeights(checkpoint::SafetensorsReader reader, std::vector<HfTensor> tensors)
    : reader_(std::move(reader)), tensors_(std::move(tensors)) {}

absl::StatusOr<HfWeights> HfWeights::Open(const std::string& path, const v1::Model& model) {
  ASSIGN_OR_RETURN(checkpoint::SafetensorsReader reader, checkpoint::SafetensorsReader::Open(path));
  HfWeights weights(std::move(reader), HfTensors(model));
  RETURN_IF_ERROR(weights.Check(model));
  return weights;
}

absl::Status HfWeights::Check(const v1::Model& model) {
  std::vector<std::string> expected;
  for (const HfTensor& tensor : tensors_) {
    std::string stored = tensor.name;
    absl::StatusOr<const TensorInfo*> info = reader_.Find(stored);
    if (!info.ok() && model.architecture() == v1::GPT2) {
      stored = std::string(absl::StripPrefix(stored, "transformer."));
      info = reader_.Find(stored);
    }
    if (!info.ok()) {
      return WeightsError(tensor.name, "", absl::StrCat("missing; the model wants it of shape ", ShapeText(tensor.shape)));
    }
    if ((*info)->shape != tensor.shape) {
      return WeightsError(stored, ShapeText((*info)->shape),
                          absl::StrCat("does not fit: the model wants ", ShapeText(tensor.shape), "; check config.json"));
    }
    const v1::DType dtype = (*info)->dtype;
    if (dtype != v1::FLOAT32 && dtype != v1::BFLOAT16 && dtype != v1::FLOAT16) {
      return WeightsError(stored, std::string(checkpoint::SafetensorsName(dtype)), "must be F32, BF16 or F16");
    }
    for (size_t i = 0; i < tensor.parameters.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * tensor.parameter_shape[0];
      places_.push_back({tensor.parameters[i], {stored, tensor.transposed, first}});
    }
    expected.push_back(stored);
  }
  const std::string embedding = expected.front();
  std::sort(places_.begin(), places_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::sort(expected.begin(), expected.end());
  for (const TensorInfo& info : reader_.tensors()) {
    if (std::binary_search(expected.begin(), expected.end(), info.name) || IsKnownBuffer(info.name)) continue;
    if (model.tie_word_embeddings() && info.name == "lm_head.weight") {
      // Some versions of transformers take the embedding for it, others untie the two.
      const v1::DType tied = (*reader_.Find(embedding))->dtype;
      if (info.dtype != tied) {
        return WeightsError(
            info.name, std::string(checkpoint::SafetensorsName(info.dtype)),
            absl::StrCat("is of another type than ", embedding, " (", std::string(checkpoint::SafetensorsName(tied)),
                         "), to which config.json ties it: remove the tensor"));
      }
      if (*reader_.Bytes(info.name) == *reader_.Bytes(embedding)) continue;
      return WeightsError(info.name, ShapeText(info.shape),
                          absl::StrCat("differs from ", embedding,
                                       ", to which config.json ties it: set tie_word_embeddings to false or remove the tensor"));
    }
    return WeightsError(info.name, ShapeText(info.shape), "the model has no such tensor; check config.json");
  }
  return absl::OkStatus();
}

absl::Status HfWeights::Load(const parallel::ShardSpec& spec, float* out) const {
  const auto it = std::lower_bound(places_.begin(), places_.end(), spec.name,
                                   [](const auto& place, const std::string& name) { return place.first < name; });
  if (it == places_.end() || it->first != spec.name) return WeightsError(spec.name, "", "the model has no such parameter");
  if (spec.Elements() == 0) return absl::OkStatus();
  const Place& place = it->second;
  Rectangle part{spec.offsets, spec.sizes};
  if (place.transposed) {
    std::swap(part.offsets[0], part.offsets[1]);
    std::swap(part.sizes[0], part.sizes[1]);
  }
  part.offsets.back() += place.first;
  ASSIGN_OR_RETURN(const TensorInfo* info, reader_.Find(place.stored));
  std::vector<char> stored(spec.Elements() * checkpoint::DTypeBytes(info->dtype));
  RETURN_IF_ERROR(reader_.Read(place.stored, part, stored.data()));
  if (place.transposed) {
    const int64_t rows = part.sizes[0], columns = part.sizes[1];
    Convert(*info, stored.data(), spec.Elements(), out, [&](int64_t i) { return i % columns * rows + i / columns; });
  } else {
    Convert(*info, stored.data(), spec.Elements(), out, [](int64_t i) { return i; });
  }
  return absl::OkStatus();
}

namespace {

// Puts one of ours, the tensor's part number `index`, where the stored tensor has it.
void PutInto(const std::vector<float>& parameter, const HfTensor& tensor, size_t index, std::vector<float>* stored) {
  if (!tensor.transposed) {
    std::copy(parameter.begin(), parameter.end(), stored->begin() + static_cast<int64_t>(index * parameter.size()));
    return;
  }
  const int64_t in = tensor.shape[0], out = tensor.shape[1], part = tensor.parameter_shape[0];
  const int64_t first = static_cast<int64_t>(index) * part;
  for (int64_t row = 0; row < part; ++row) {
    for (int64_t column = 0; column < in; ++column) (*stored)[column * out + first + row] = parameter[row * in + column];
  }
}

}  // namespace

absl::Status ExportHfFolder(const v1::Model& model, const std::string& folder, const ParameterSource& source,
                            const checkpoint::BytesDone& done) {
  const std::vector<HfTensor> tensors = HfTensors(model);
  std::vector<checkpoint::TensorSpec> specs;
  for (const HfTensor& tensor : tensors) specs.push_back({tensor.name, v1::FLOAT32, tensor.shape});
  ASSIGN_OR_RETURN(auto writer, checkpoint::SafetensorsFolderWriter::Create(folder, specs, checkpoint::kMaxFileBytes, done));
  for (const HfTensor& tensor : tensors) {
    std::vector<float> stored(checkpoint::Volume(tensor.shape)), parameter(checkpoint::Volume(tensor.parameter_shape));
    for (size_t i = 0; i < tensor.parameters.size(); ++i) {
      absl::Status status = source(tensor.parameters[i], tensor.parameter_shape, parameter.data());
      if (!status.ok()) return Annotate(status, tensor.parameters[i]);
      PutInto(parameter, tensor, i, &stored);
    }
    const int64_t bytes = static_cast<int64_t>(stored.size() * sizeof(float));
    RETURN_IF_ERROR(writer.Write(tensor.name, stored.data(), bytes));
  }
  RETURN_IF_ERROR(writer.Finish());
  return checkpoint::ReplaceFile(folder + "/config.json", WriteHfConfig(model));
}

}  // namespace legoai::model
