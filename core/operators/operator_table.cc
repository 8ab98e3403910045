#include "core/operators/operator_table.h"

#include <array>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "core/trace/effects.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/views.h"

namespace legoai::sim {
namespace {

using enum OpClass;
using enum Traffic;

void AddAll(std::vector<OperatorRow>& rows, OperatorRow row, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    row.name = name;
    rows.push_back(row);
  }
}

void AddViews(std::vector<OperatorRow>& rows) {
  for (const std::string_view name : graph::ViewNames()) AddAll(rows, {.op_class = kView, .flops_per_element = 0}, {name});
}

void AddElementwise(std::vector<OperatorRow>& rows) {
  AddAll(rows, {.workspace = WorkspaceRule::kCasts},
         {"aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::rsub", "aten::mul", "aten::mul_", "aten::div",
          "aten::div_", "aten::minimum", "aten::maximum"});
  AddAll(rows, {}, {"aten::neg",           "aten::neg_",          "aten::abs",           "aten::abs_",
                    "aten::sign",          "aten::relu",          "aten::relu_",         "aten::threshold_backward",
                    "aten::clamp",         "aten::clamp_",        "aten::clamp_min",     "aten::clamp_min_",
                    "aten::clamp_max",     "aten::clamp_max_",    "aten::where",         "aten::masked_fill",
                    "aten::masked_fill_",  "aten::reciprocal",    "aten::reciprocal_",   "aten::square",
                    "aten::triu",          "aten::tril",          "aten::triu_",         "aten::tril_",
                    "aten::remainder",     "aten::floor_divide",  "aten::floor",         "aten::round",
                    "aten::_foreach_add_", "aten::_foreach_sub_", "aten::_foreach_mul_", "aten::_foreach_div_",
                    "aten::_foreach_mul",  "aten::_foreach_div",  "aten::_foreach_add"});
  AddAll(rows, {.flops_per_element = 2},
         {"aten::addcmul", "aten::addcmul_", "aten::addcdiv", "aten::addcdiv_", "aten::lerp", "aten::lerp_"});
  AddAll(rows, {.flops_per_element = 4}, {"aten::sqrt", "aten::sqrt_", "aten::rsqrt", "aten::rsqrt_", "aten::_foreach_sqrt"});
  AddAll(rows, {.flops_per_element = 12},
         {"aten::exp",  "aten::exp_",  "aten::log",           "aten::log_",    "aten::sin",           "aten::cos",
          "aten::tanh", "aten::tanh_", "aten::tanh_backward", "aten::sigmoid", "aten::sigmoid_",      "aten::sigmoid_backward",
          "aten::silu", "aten::silu_", "aten::silu_backward", "aten::gelu",    "aten::gelu_backward", "aten::pow",
          "aten::pow_", "aten::erf",  "aten::logaddexp"});
  AddAll(rows, {.traffic = kGathers}, {"aten::embedding", "aten::index_select", "aten::index", "aten::gather"});
  AddAll(rows, {.flops_per_element = 40}, {"lego::dropout"});
  AddAll(rows, {.flops_per_element = 40, .traffic = kOverwrites}, {"lego::round_stochastically_"});
}

void AddComparisons(std::vector<OperatorRow>& rows) {
  AddAll(rows, {.workspace = WorkspaceRule::kCasts}, {"aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge"});
  AddAll(rows, {}, {"aten::logical_and", "aten::logical_or",   "aten::logical_not",  "aten::logical_and_",
                    "aten::logical_or_",  "aten::bitwise_and", "aten::bitwise_or",   "aten::bitwise_not",  "aten::bitwise_xor",
                    "aten::bitwise_and_", "aten::bitwise_or_", "aten::bitwise_xor_", "aten::bitwise_not_", "aten::logical_not_",
                    "aten::logical_xor",  "aten::eq_",         "aten::ne_",          "aten::lt_",          "aten::le_",
                    "aten::gt_",          "aten::ge_",         "aten::isfinite",     "aten::isnan",        "aten::isinf"});
}

void AddReductions(std::vector<OperatorRow>& rows) {
  AddAll(rows, {.op_class = kReduction},
         {"aten::sum", "aten::mean", "aten::amax", "aten::amin", "aten::max", "aten::min", "aten::argmax", "aten::prod",
          "aten::all", "aten::any", "aten::var_mean", "aten::var", "aten::cumsum", "aten::linalg_vector_norm", "aten::norm"});
  AddAll(rows, {.op_class = kReduction, .flops_per_element = 2, .workspace = WorkspaceRule::kForeachNorm},
         {"aten::_foreach_norm"});
  AddAll(rows, {.op_class = kReduction, .flops_per_element = 8}, {"aten::rms_norm", "lego::rms_norm"});
  AddAll(rows, {.op_class = kReduction, .flops_per_element = 8, .results = ResultRule::kLayerNorm}, {"aten::native_layer_norm"});
  AddAll(rows, {.op_class = kReduction, .flops_per_element = 12, .workspace = WorkspaceRule::kLayerNormBackward},
         {"aten::native_layer_norm_backward"});
  AddAll(rows, {.op_class = kReduction, .flops_per_element = 12, .workspace = WorkspaceRule::kRmsNormBackward},
         {"lego::rms_norm_backward"});
  AddAll(rows, {.op_class = kReduction, .flops_per_element = 16},
         {"aten::_softmax", "aten::_softmax_backward_data", "aten::_log_softmax", "aten::_log_softmax_backward_data",
          "aten::logsumexp"});
  AddAll(rows, {.op_class = kReduction, .traffic = kPicks}, {"aten::nll_loss_forward", "aten::nll_loss2d_forward"});
  AddAll(rows, {.op_class = kReduction, .traffic = kWrites}, {"aten::nll_loss_backward", "aten::nll_loss2d_backward"});
}

void AddCopies(std::vector<OperatorRow>& rows) {
  AddAll(rows, {.op_class = kCopy, .flops_per_element = 0},
         {"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::cat", "aten::stack", "aten::repeat",
          "aten::constant_pad_nd", "aten::flip", "aten::repeat_interleave"});
  AddAll(rows, {.op_class = kCopy, .flops_per_element = 0, .results = ResultRule::kContiguous}, {"aten::roll"});
  AddAll(rows, {.op_class = kCopy, .flops_per_element = 0, .traffic = kOverwrites},
         {"aten::copy_", "aten::fill_", "aten::zero_", "aten::_foreach_zero_", "aten::_foreach_copy_", "aten::normal_",
          "aten::uniform_"});
  AddAll(rows, {.op_class = kCopy, .flops_per_element = 0},
         {"aten::zeros", "aten::zeros_like", "aten::ones", "aten::ones_like", "aten::full", "aten::full_like", "aten::new_zeros",
          "aten::new_ones", "aten::new_full", "aten::arange", "aten::scalar_tensor", "aten::slice_backward",
          "aten::select_backward"});
  AddAll(rows, {.op_class = kCopy, .traffic = kScatters},
         {"aten::index_put_", "aten::_index_put_impl_", "aten::index_add_", "aten::scatter_", "aten::scatter_add_",
          "aten::scatter", "aten::index_copy_", "aten::index_fill_"});
  AddAll(rows, {.op_class = kCopy, .workspace = WorkspaceRule::kEmbeddingBackward}, {"aten::embedding_dense_backward"});
}

void AddComputeBound(std::vector<OperatorRow>& rows) {
  AddAll(rows, {.op_class = kMatmul, .flops = FlopRule::kMatmul, .workspace = WorkspaceRule::kMatmul},
         {"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm", "aten::baddbmm_"});
  AddAll(rows,
         {.op_class = kAttention,
          .flops = FlopRule::kAttention,
          .workspace = WorkspaceRule::kAttention,
          .results = ResultRule::kAttention},
         {"lego::attention"});
  AddAll(rows, {.op_class = kAttention, .flops = FlopRule::kAttentionBackward, .workspace = WorkspaceRule::kAttentionBackward},
         {"lego::attention_backward"});
  AddAll(rows, {.op_class = kAttention, .flops = FlopRule::kAttention, .workspace = WorkspaceRule::kFlashAttention},
         {"aten::_scaled_dot_product_flash_attention_for_cpu"});
  AddAll(rows,
         {.op_class = kAttention, .flops = FlopRule::kAttentionBackward, .workspace = WorkspaceRule::kFlashAttentionBackward},
         {"aten::_scaled_dot_product_flash_attention_for_cpu_backward"});
}

void AddRest(std::vector<OperatorRow>& rows) {
  AddAll(rows, {.flops = FlopRule::kFused}, {graph::kFusedOperator});
  AddAll(rows, {.op_class = kOptimizer, .flops_per_element = 16},
         {"aten::_fused_adamw_", "aten::_fused_adam_", "aten::_fused_sgd_"});
  for (const graph::EffectRow& row : graph::EffectRows())
    AddAll(rows, {.op_class = row.IsCommunication() ? kCollective : kControl, .flops_per_element = 0}, {row.name});
}

std::string_view BaseName(std::string_view name) {
  size_t scope = name.find("::");
  size_t dot = name.find('.', scope == std::string_view::npos ? 0 : scope);
  return name.substr(0, dot);
}

}  // namespace

const char* OpClassName(OpClass op_class) {
  static constexpr std::array<const char*, 9> kNames = {"view", "matmul",    "attention",  "elementwise", "reduction",
                                                        "copy", "optimizer", "collective", "control"};
  return kNames[static_cast<size_t>(op_class)];
}

const std::vector<OperatorRow>& OperatorTable() {
  static const auto* const table = [] {
    auto* rows = new std::vector<OperatorRow>();
    AddViews(*rows);
    AddElementwise(*rows);
    AddComparisons(*rows);
    AddReductions(*rows);
    AddCopies(*rows);
    AddComputeBound(*rows);
    AddRest(*rows);
    return rows;
  }();
  return *table;
}

const OperatorRow* FindOperator(std::string_view name) {
  static const auto* const index = [] {
    auto* map = new std::unordered_map<std::string_view, const OperatorRow*>();
    for (const auto& row : OperatorTable()) map->emplace(row.name, &row);
    return map;
  }();
  auto found = index->find(BaseName(name));
  return found == index->end() ? nullptr : found->second;
}

absl::StatusOr<std::vector<const OperatorRow*>> ResolveOperators(const graph::Trace& trace) {
  std::vector<const OperatorRow*> rows;
  rows.reserve(trace.operators.size());
  for (const auto& op : trace.operators) {
    const OperatorRow* row = FindOperator(op.name);
    if (row == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("operator ", op.name, " is not known to the cost and memory models; add its row to operator_table.cc"));
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace legoai::sim
