#include "core/model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::model {
namespace {

using Json = Tree;

// Reads keys of one object and keeps the first fault; later reads then do nothing and give zeros.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  int64_t Whole(const char* key, std::optional<int64_t> otherwise = {}) {
    const Json* value = Find(key);
    if (!value) return Missing(key, otherwise);
    if (!value->is_number_integer() || value->get<double>() < 1 || value->get<double>() > 1e9) {
      Fail(key, "must be a whole number between 1 and 1000000000");
      return 0;
    }
    return value->get<int64_t>();
  }
  // A number in [least, most].
  double Real(const char* key, double least, double most, std::optional<double> otherwise = {}) {
    const Json* value = Find(key);
    if (!value) return Missing(key, otherwise);
    if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most)) {
      Fail(key, absl::StrCat("must be a number between ", least, " and ", most));
      return 0;
    }
    return value->get<double>();
  }
  // To transformers null is false, whatever the default.
  bool Boolean(const char* key, bool otherwise) {
    if (!json_.contains(key)) return otherwise;
    const Json& value = json_[key];
    if (!value.is_boolean()) Fail(key, "must be true or false");
    return value.is_boolean() ? value.get<bool>() : otherwise;
  }
  // Refuses any other value of a key that would change the model. A missing key has the value `only`.
  void Only(const char* key, const Json& only) {
    const Json* value = Find(key);
    if (value && *value != only) Fail(key, absl::StrCat("is not supported: only ", only.dump(), " is"));
  }
  void NotThere(const char* key) {
    if (Find(key)) Fail(key, "is not supported: leave it out");
  }
  // Null, where transformers gives null a meaning of its own.
  bool IsNull(const char* key) const { return json_.contains(key) && json_.at(key).is_null(); }
  // Null and absent are one.
  const Json* Find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  void Fail(const std::string& key, const std::string& remedy) {
    const Json* value = Find(key.c_str());
    std::string shown = !value ? "" : value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, kReplace);
    if (shown.size() > 80) shown = shown.substr(0, 77) + "...";
    Adopt(FieldError("config.json: " + key, shown, remedy));
  }
  void Adopt(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const absl::Status& status() const { return status_; }

 private:
  static constexpr Json::error_handler_t kReplace = Json::error_handler_t::replace;
  template <typename T>
  T Missing(const char* key, std::optional<T> otherwise) {
    if (!otherwise) Fail(key, "is missing: the model cannot be built without it");
    return otherwise.value_or(T());
  }
  const Json& json_;
  absl::Status status_;
};

constexpr double kMax = 1e30;
constexpr double kMostParameters = 1e15;  // keeps counts of bytes and operations within 64 bits

// "rope_type", or "type" as older files have it. Without either an object may hold no more than rope_theta: transformers reads
// no scaling without its kind.
void ReadRopeScaling(const Json& rope, Reader* outer, v1::Model* model) {
  Reader reader(rope);
  reader.Only("partial_rotary_factor", 1.0);
  const Json *type = reader.Find("rope_type"), *older = reader.Find("type");
  if (type && older && *type != *older) reader.Fail("type", "differs from rope_type: leave one of them out");
  if (!type && !older && rope.size() > rope.count("rope_theta")) {
    reader.Fail("rope_type", "is missing: give \"llama3\" or \"default\"");
  }
  const std::string key = type ? "rope_type" : "type";
  if (!type) type = older;
  outer->Adopt(reader.status());
  if (!type || *type == "default") return;
  if (*type != "llama3") reader.Fail(key, "is not supported: only \"default\" and \"llama3\" are");
  v1::RopeScaling* scaling = model->mutable_rope_scaling();
  scaling->set_factor(reader.Real("factor", 1, kMax));
  scaling->set_low_freq_factor(reader.Real("low_freq_factor", 1e-6, kMax));
  scaling->set_high_freq_factor(reader.Real("high_freq_factor", 1e-6, kMax));
  scaling->set_original_max_position_embeddings(reader.Whole("original_max_position_embeddings"));
  if (reader.status().ok() && scaling->high_freq_factor() <= scaling->low_freq_factor()) {
    reader.Fail("high_freq_factor", "must be above low_freq_factor");
  }
  outer->Adopt(reader.status());
}

// rope_theta and rope_scaling; transformers 5 writes both into rope_parameters. Which of two that differ is read depends on the
// version of transformers.
void ReadRope(Reader* reader, v1::Model* model) {
  const Json *newer = reader->Find("rope_parameters"), *older = reader->Find("rope_scaling");
  if (newer && older && nlohmann::json(*newer) != nlohmann::json(*older)) {
    return reader->Fail("rope_scaling", "differs from rope_parameters: leave one of them out");
  }
  const char* key = newer ? "rope_parameters" : "rope_scaling";
  const Json* rope = newer ? newer : older;
  const double beside = reader->Real("rope_theta", 1, kMax, 10000.0);
  model->set_rope_theta(beside);
  if (!rope) return;
  if (!rope->is_object()) return reader->Fail(key, "must be an object");
  ReadRopeScaling(*rope, reader, model);
  Reader inside(*rope);
  model->set_rope_theta(inside.Real("rope_theta", 1, kMax, beside));
  reader->Adopt(inside.status());
  if (model->rope_theta() != beside && (older || reader->Find("rope_theta"))) {
    reader->Fail("rope_theta", absl::StrCat("differs from that in ", key, ", ", model->rope_theta(), ": make them equal"));
  }
}

// What families of Llama's kind are called, and what transformers takes for keys that are missing.
struct Family {
  v1::Architecture architecture;
  const char* name;
  const char* model_type;
  int64_t positions;
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  int64_t kv_heads = 0;  // 0: num_attention_heads
  const char* activation = "silu";
  bool tied = false;
};
constexpr Family kFamilies[] = {
    {v1::LLAMA, "LlamaForCausalLM", "llama", 2048},
    {v1::MISTRAL, "MistralForCausalLM", "mistral", 131072, 0, 8},
    {v1::QWEN2, "Qwen2ForCausalLM", "qwen2", 32768, 0, 32},
    {v1::QWEN3, "Qwen3ForCausalLM", "qwen3", 32768, 128, 32},
    {v1::GEMMA, "GemmaForCausalLM", "gemma", 8192, 256, 16, "gelu_pytorch_tanh", true},
    {v1::GEMMA2, "Gemma2ForCausalLM", "gemma2", 8192, 256, 4, "gelu_pytorch_tanh", true},
};
constexpr char kGpt2Name[] = "GPT2LMHeadModel", kGpt2Type[] = "gpt2";
// Megatron's GPT, which transformers has not: GPT-2's keys, and those of kGptKeys.
constexpr char kGptName[] = "GPTModel", kGptType[] = "gpt";

// Null for another family.
const Family* FamilyOf(v1::Architecture architecture) {
  const auto* at = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                [&](const Family& family) { return family.architecture == architecture; });
  return at == std::end(kFamilies) ? nullptr : at;
}

// Mistral's window is one for all layers; null: none.
void ReadMistralWindow(Reader* reader, v1::Model* model) {
  constexpr int64_t kOfMissing = 4096;
  reader->NotThere("layer_types");
  if (!reader->IsNull("sliding_window")) model->set_sliding_window(reader->Whole("sliding_window", kOfMissing));
}

constexpr char kMixedWindows[] =
    "mixes layers with and without a sliding window, which is not supported: all layers have one, or none";

// Qwen's window is that of the layers from max_window_layers on, or of those that layer_types names, if use_sliding_window.
void ReadQwenWindow(Reader* reader, v1::Model* model) {
  constexpr int64_t kWindowOfMissing = 4096, kLayersOfMissing = 28;
  const bool has_window = reader->Boolean("use_sliding_window", false) && !reader->IsNull("sliding_window");
  const int64_t window = has_window ? reader->Whole("sliding_window", kWindowOfMissing) : 0, layers = model->num_hidden_layers();
  const Json* types = reader->Find("layer_types");
  if (types != nullptr) {
    if (!types->is_array() || static_cast<int64_t>(types->size()) != layers)
      return reader->Fail("layer_types", absl::StrCat("must be a list of the kinds of ", layers, " layers"));
    const auto is = [](const char* kind) { return [kind](const Json& type) { return type == kind; }; };
    if (std::all_of(types->begin(), types->end(), is("full_attention"))) return;
    if (!std::all_of(types->begin(), types->end(), is("sliding_attention"))) return reader->Fail("layer_types", kMixedWindows);
    if (!has_window)
      return reader->Fail("layer_types", "is sliding_attention without a window: set use_sliding_window and sliding_window");
    return model->set_sliding_window(window);
  }
  if (!has_window) return;
  const Json* first = reader->Find("max_window_layers");
  if (first != nullptr && *first == 0) return model->set_sliding_window(window);
  const int64_t without = reader->Whole("max_window_layers", kLayersOfMissing);
  if (reader->status().ok() && without < layers) reader->Fail("max_window_layers", kMixedWindows);
}

void ReadGemma(Reader* reader) {
  reader->Only("hidden_activation", "gelu_pytorch_tanh");
  reader->Only("use_bidirectional_attention", false);
}

// The window is that of every second layer, the first among them, which newer versions of transformers write as layer_types.
void ReadGemma2(Reader* reader, v1::Model* model) {
  constexpr double kLeast = 1e-3;
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"}) {
    if (reader->IsNull(key)) return reader->Fail(key, "is null, and Gemma 2 without it is not supported: give a number");
  }
  model->set_attn_logit_softcapping(reader->Real("attn_logit_softcapping", kLeast, kMax, 50.0));
  model->set_final_logit_softcapping(reader->Real("final_logit_softcapping", kLeast, kMax, 30.0));
  model->set_query_pre_attn_scalar(reader->Real("query_pre_attn_scalar", kLeast, kMax, 256.0));
  model->set_sliding_window(reader->Whole("sliding_window", 4096));
  model->set_sliding_window_alternates(true);
  Json alternating = Json::array();
  for (int64_t layer = 0; layer < model->num_hidden_layers(); ++layer)
    alternating.push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  const Json* types = reader->Find("layer_types");
  if (types != nullptr && *types != alternating) {
    reader->Fail("layer_types", "must be sliding_attention and full_attention by turns, sliding_attention first, of all layers");
  }
}

// What a family has that Llama has not.
void ReadSwitches(Reader* reader, v1::Model* model) {
  const bool is_qwen = model->architecture() == v1::QWEN2 || model->architecture() == v1::QWEN3;
  model->set_qkv_bias(model->architecture() == v1::QWEN2);
  model->set_qk_norm(model->architecture() == v1::QWEN3);
  if (is_qwen) ReadQwenWindow(reader, model);
  if (model->architecture() == v1::MISTRAL) ReadMistralWindow(reader, model);
  if (model->architecture() == v1::GEMMA) {
    const Json* activation = reader->Find("hidden_act");
    if (activation != nullptr && *activation == "gelu") {
      reader->Fail("hidden_act",
                   "is read by some versions of transformers as the exact function and by others as its approximation by tanh: "
                   "write \"gelu_pytorch_tanh\", with which Gemma was trained");
    }
    ReadGemma(reader);
  }
  if (model->architecture() == v1::GEMMA2) {
    ReadGemma(reader);
    ReadGemma2(reader, model);
  }
}

void ReadLlama(const Family& family, Reader* reader, v1::Model* model) {
  model->set_architecture(family.architecture);
  model->set_vocab_size(reader->Whole("vocab_size"));
  model->set_hidden_size(reader->Whole("hidden_size"));
  model->set_intermediate_size(reader->Whole("intermediate_size"));
  model->set_num_hidden_layers(reader->Whole("num_hidden_layers"));
  const int64_t heads = reader->Whole("num_attention_heads");
  model->set_num_attention_heads(heads);
  const bool has_default = family.kv_heads > 0 && !reader->IsNull("num_key_value_heads");
  model->set_num_key_value_heads(reader->Whole("num_key_value_heads", has_default ? family.kv_heads : heads));
  if (!reader->status().ok()) return;
  if (heads % model->num_key_value_heads() != 0) reader->Fail("num_key_value_heads", "must divide num_attention_heads");
  if (!reader->Find("head_dim") && family.head_dim == 0 && model->hidden_size() % heads != 0) {
    reader->Fail("num_attention_heads", "must divide hidden_size where head_dim is not given");
  }
  model->set_head_dim(reader->Whole("head_dim", family.head_dim > 0 ? family.head_dim : model->hidden_size() / heads));
  if (model->head_dim() % 2 != 0) reader->Fail("head_dim", "must be even: rotary positions turn pairs of channels");
  model->set_max_position_embeddings(reader->Whole("max_position_embeddings", family.positions));
  model->set_norm_eps(reader->Real("rms_norm_eps", 0, 1, 1e-6));
  model->set_initializer_range(reader->Real("initializer_range", 0, kMax, 0.02));
  model->set_tie_word_embeddings(reader->Boolean("tie_word_embeddings", family.tied));
  ReadRope(reader, model);
  ReadSwitches(reader, model);
  reader->Only("model_type", family.model_type);
  reader->Only("partial_rotary_factor", 1.0);
  reader->Only("hidden_act", family.activation);
  reader->Only("attention_bias", false);
  reader->Only("mlp_bias", false);
  reader->Only("attention_dropout", 0.0);
}

constexpr const char* kGptKeys[] = {"num_key_value_heads", "parallel_block"};

// Of either name.
void ReadGpt2(const std::string& name, Reader* reader, v1::Model* model) {
  model->set_architecture(v1::GPT2);
  model->set_vocab_size(reader->Whole("vocab_size"));
  model->set_hidden_size(reader->Whole("n_embd"));
  model->set_intermediate_size(reader->Whole("n_inner", 4 * model->hidden_size()));
  model->set_num_hidden_layers(reader->Whole("n_layer"));
  const int64_t heads = reader->Whole("n_head");
  model->set_num_attention_heads(heads);
  model->set_num_key_value_heads(heads);
  model->set_max_position_embeddings(reader->Whole("n_positions"));
  if (!reader->status().ok()) return;
  if (model->hidden_size() % heads != 0) reader->Fail("n_head", "must divide n_embd");
  model->set_head_dim(model->hidden_size() / heads);
  model->set_norm_eps(reader->Real("layer_norm_epsilon", 0, 1, 1e-5));
  model->set_initializer_range(reader->Real("initializer_range", 0, kMax, 0.02));
  model->set_tie_word_embeddings(reader->Boolean("tie_word_embeddings", true));
  const double below_one = std::nextafter(1.0, 0.0);
  model->set_embd_pdrop(reader->Real("embd_pdrop", 0, below_one, 0.1));
  model->set_attn_pdrop(reader->Real("attn_pdrop", 0, below_one, 0.1));
  model->set_resid_pdrop(reader->Real("resid_pdrop", 0, below_one, 0.1));
  if (name == kGptName) {
    model->set_num_key_value_heads(reader->Whole("num_key_value_heads", heads));
    if (reader->status().ok() && heads % model->num_key_value_heads() != 0) {
      reader->Fail("num_key_value_heads", "must divide n_head");
    }
    model->set_parallel_block(reader->Boolean("parallel_block", false));
    if (model->num_key_value_heads() != heads && model->attn_pdrop() > 0) {
      reader->Fail("attn_pdrop", "must be 0 where heads share keys and values");
    }
    if (model->parallel_block() && model->resid_pdrop() > 0) reader->Fail("resid_pdrop", "must be 0 with parallel_block");
  } else {
    for (const char* key : kGptKeys) reader->NotThere(key);
  }
  reader->Only("model_type", name == kGptName ? kGptType : kGpt2Type);
  // transformers reads these names of the sizes too.
  reader->Only("hidden_size", model->hidden_size());
  reader->Only("num_hidden_layers", model->num_hidden_layers());
  reader->Only("num_attention_heads", heads);
  reader->Only("max_position_embeddings", model->max_position_embeddings());
  // Two names of one function.
  if (!reader->Find("activation_function") || *reader->Find("activation_function") != "gelu_pytorch_tanh") {
    reader->Only("activation_function", "gelu_new");
  }
  reader->Only("scale_attn_weights", true);
  reader->Only("scale_attn_by_inverse_layer_idx", false);
  reader->Only("reorder_and_upcast_attn", false);
  reader->Only("add_cross_attention", false);
}

// At least as many as the model has; a double, for the keys are free.
double MostParameters(const v1::Model& m) {
  const double hidden = static_cast<double>(m.hidden_size()), heads = static_cast<double>(m.num_attention_heads());
  const double attention = 4 * hidden * heads * static_cast<double>(m.head_dim());
  const double feed_forward = 3 * hidden * static_cast<double>(m.intermediate_size());
  const double tables = hidden * (2.0 * static_cast<double>(m.vocab_size()) + static_cast<double>(m.max_position_embeddings()));
  return tables + static_cast<double>(m.num_hidden_layers()) * (attention + feed_forward);
}

// "architectures" says what is in the weights; "model_type" stands in where it is absent.
std::string Architecture(Reader* reader) {
  const Json* list = reader->Find("architectures");
  if (list && list->is_array() && list->size() == 1 && list->front().is_string()) return list->front().get<std::string>();
  if (list) return "";
  const Json* type = reader->Find("model_type");
  if (!type) return "";
  for (const Family& family : kFamilies) {
    if (*type == family.model_type) return family.name;
  }
  return *type == kGpt2Type ? kGpt2Name : *type == kGptType ? kGptName : "";
}

void WriteRopeScaling(Json* json, const v1::Model& model) {
  (*json)["rope_scaling"] = nullptr;
  if (!model.has_rope_scaling()) return;
  const v1::RopeScaling& scaling = model.rope_scaling();
  (*json)["rope_scaling"] = {{"factor", scaling.factor()},
                             {"high_freq_factor", scaling.high_freq_factor()},
                             {"low_freq_factor", scaling.low_freq_factor()},
                             {"original_max_position_embeddings", scaling.original_max_position_embeddings()},
                             {"rope_type", "llama3"}};
}

// Keys of its own family alone.
void WriteSwitches(Json* json, const v1::Model& m) {
  if (m.architecture() == v1::MISTRAL || m.architecture() == v1::QWEN2) json->erase("attention_bias");
  if (m.architecture() != v1::LLAMA) json->erase("mlp_bias");
  const Json window = m.sliding_window() > 0 ? Json(m.sliding_window()) : Json();
  if (m.architecture() == v1::MISTRAL) json->update({{"sliding_window", window}});
  if (m.architecture() == v1::GEMMA2) {
    json->update({{"attn_logit_softcapping", m.attn_logit_softcapping()},
                  {"final_logit_softcapping", m.final_logit_softcapping()},
                  {"hidden_activation", (*json)["hidden_act"]},
                  {"query_pre_attn_scalar", m.query_pre_attn_scalar()},
                  {"sliding_window", window}});
  }
  if (m.architecture() == v1::QWEN2 || m.architecture() == v1::QWEN3) {
    json->update({{"max_window_layers", m.sliding_window() > 0 ? 0 : m.num_hidden_layers()},
                  {"sliding_window", window},
                  {"use_sliding_window", m.sliding_window() > 0}});
  }
}

Json LlamaJson(const v1::Model& m) {
  const Family& family = *FamilyOf(m.architecture());
  Json json = {{"architectures", Json::array({family.name})},
               {"attention_bias", false},
               {"attention_dropout", 0.0},
               {"head_dim", m.head_dim()},
               {"hidden_act", family.activation},
               {"hidden_size", m.hidden_size()},
               {"initializer_range", m.initializer_range()},
               {"intermediate_size", m.intermediate_size()},
               {"max_position_embeddings", m.max_position_embeddings()},
               {"mlp_bias", false},
               {"model_type", family.model_type},
               {"num_attention_heads", m.num_attention_heads()},
               {"num_hidden_layers", m.num_hidden_layers()},
               {"num_key_value_heads", m.num_key_value_heads()},
               {"rms_norm_eps", m.norm_eps()}};
  WriteRopeScaling(&json, m);
  json.update({{"rope_theta", m.rope_theta()},
               {"tie_word_embeddings", m.tie_word_embeddings()},
               {"torch_dtype", "float32"},
               {"use_cache", true},
               {"vocab_size", m.vocab_size()}});
  WriteSwitches(&json, m);
  return json;
}

Json Gpt2Json(const v1::Model& m) {
  const bool is_gpt2 = m.num_key_value_heads() == m.num_attention_heads() && !m.parallel_block();
  Json json = {{"activation_function", "gelu_new"},
               {"architectures", Json::array({is_gpt2 ? kGpt2Name : kGptName})},
               {"attn_pdrop", m.attn_pdrop()},
               {"embd_pdrop", m.embd_pdrop()},
               {"initializer_range", m.initializer_range()},
               {"layer_norm_epsilon", m.norm_eps()},
               {"model_type", is_gpt2 ? kGpt2Type : kGptType},
               {"n_embd", m.hidden_size()},
               {"n_head", m.num_attention_heads()},
               {"n_inner", m.intermediate_size()},
               {"n_layer", m.num_hidden_layers()},
               {"n_positions", m.max_position_embeddings()},
               {"resid_pdrop", m.resid_pdrop()},
               {"tie_word_embeddings", m.tie_word_embeddings()},
               {"torch_dtype", "float32"},
               {"use_cache", true},
               {"vocab_size", m.vocab_size()}};
  if (!is_gpt2) json.update({{"num_key_value_heads", m.num_key_value_heads()}, {"parallel_block", m.parallel_block()}});
  return json;
}

// A fault of the text, or of a key in it, as one of config.json.
absl::Status ConfigError(const absl::Status& status) {
  const v1::FieldViolation fault = GetFieldViolation(status).value_or(v1::FieldViolation());
  return FieldError(fault.field() == "JSON" ? "config.json" : "config.json: " + fault.field(), fault.value(), fault.remedy());
}

}  // namespace

absl::StatusOr<v1::Model> ParseHfConfig(const std::string& text, const std::string& name) {
  const absl::StatusOr<Json> parsed = ParseJsonTree(text);
  if (!parsed.ok()) return ConfigError(parsed.status());
  const Json& json = *parsed;
  if (!json.is_object()) return FieldError("config.json", "", "is not a JSON object");
  v1::Model model;
  model.set_name(name);
  model.set_config_json(text);
  Reader reader(json);
  const std::string architecture = Architecture(&reader);
  const auto* const family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                          [&](const Family& known) { return known.name == architecture; });
  if (family != std::end(kFamilies)) {
    ReadLlama(*family, &reader, &model);
  } else if (architecture == kGpt2Name || architecture == kGptName) {
    ReadGpt2(architecture, &reader, &model);
  } else {
    std::string known;
    for (const Family& one : kFamilies) absl::StrAppend(&known, one.name, ", ");
    reader.Fail("architectures", absl::StrCat("is not supported: ", known, kGpt2Name, " and ", kGptName, " are"));
  }
  reader.NotThere("quantization_config");
  reader.Only("pruned_heads", Json::object());
  if (!reader.status().ok()) return reader.status();
  if (const double count = MostParameters(model); count > kMostParameters) {
    return FieldError("config.json", absl::StrCat(count, " parameters"),
                      absl::StrCat("is more than a model can have here, ", kMostParameters, ": check the sizes"));
  }
  return model;
}

absl::StatusOr<v1::Model> ReadHfConfig(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? fs::path(path) / "config.json" : fs::path(path);
  ASSIGN_OR_RETURN(const auto text,
                   ReadFileOf("model.name", file.string(), kMostTextBytes, "give the path of a config.json, or of its folder"));
  const fs::path folder = fs::absolute(file, ignored).lexically_normal().parent_path();
  auto model = ParseHfConfig(text, folder.filename().string());
  return model.ok() ? model : Annotate(model.status(), file.string());
}

std::string WriteHfConfig(const v1::Model& model) {
  if (!model.config_json().empty()) return model.config_json();
  return (FamilyOf(model.architecture()) == nullptr ? Gpt2Json(model) : LlamaJson(model)).dump(2) + "\n";
}

std::string WriteHfConfigOfExport(const v1::Model& model, std::optional<int32_t> begin, std::optional<int32_t> end) {
  const std::string text = WriteHfConfig(model);
  auto json = ParseJsonTree(text);
  if (!json.ok() || !json->is_object()) return text;  // a model was made of it, so it is one
  const Json before = *json;
  const auto set = [&](const char* key, std::optional<int32_t> id) {
    const Json now = json->contains(key) ? (*json)[key] : Json();
    const bool is_there = id && (now == *id || (now.is_array() && std::find(now.begin(), now.end(), Json(*id)) != now.end()));
    if (!is_there) (*json)[key] = id ? Json(*id) : Json();
  };
  set("bos_token_id", begin);
  set("eos_token_id", end);
  for (const char* key : {"torch_dtype", "dtype"}) {  // the newer name; without either transformers reads float32
    if (json->contains(key)) (*json)[key] = "float32";
  }
  return *json == before ? text : json->dump(2) + "\n";
}

}  // namespace legoai::model
