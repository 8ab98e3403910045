// An oracle for passes: runs the Traces of all ranks of one group side by side, on plain numbers, with collectives that are done
// at once. Knows the operators that tests of passes write; others do nothing. Not thread-safe.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/trace/effects.h"
#include "core/trace/trace.h"

namespace legoai::graph {

class Lockstep {
 public:
  // Numbers of inputs follow from their names and, but for "x", from the rank. `whole`: whole ones, whose sums are the same in
  // any order.
  explicit Lockstep(const std::vector<Trace>& traces, bool whole = false) : traces_(traces), memory_(traces.size()) {
    for (size_t r = 0; r < traces.size(); ++r) {
      memory_[r].resize(traces[r].storages.size());
      for (const auto& [name, value] : traces[r].inputs) {
        auto& memory = memory_[r][traces[r].values[value].storage];
        std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name) + (name == "x" ? 0 : r)));
        memory.resize(Elements(traces[r].geometries[traces[r].values[value].geometry]));
        for (float& number : memory) {
          number = std::uniform_real_distribution<float>(-1, 1)(random);
          if (whole) number = std::round(4 * number);
        }
      }
    }
  }

  void Run() {
    for (size_t i = 0; i < traces_[0].instructions.size(); ++i) {
      for (size_t r = 0; r < traces_.size(); ++r) Do(r, traces_[r].instructions[i]);
      Collect(i);
    }
  }
  std::map<std::string, std::vector<float>> Results(size_t rank) {
    std::map<std::string, std::vector<float>> results;
    for (const auto* bindings : {&traces_[rank].inputs, &traces_[rank].outputs}) {
      for (const auto& [name, value] : *bindings) {
        results[name + (bindings == &traces_[rank].outputs ? " out" : "")] = Get(rank, value);
      }
    }
    return results;
  }

 private:
  template <class F>
  void ForEach(size_t rank, uint32_t id, F f) {
    const Value& value = traces_[rank].values[id];
    const Geometry& g = traces_[rank].geometries[value.geometry];
    auto& memory = memory_[rank][value.storage];
    for (int64_t n = 0; n < Elements(g); ++n) {
      int64_t at = g.offset, rest = n;
      for (size_t d = g.sizes.size(); d-- > 0;) at += rest % g.sizes[d] * g.strides[d], rest /= g.sizes[d];
      f(n, memory.at(at));
    }
  }
  std::vector<float> Get(size_t rank, uint32_t id) {
    std::vector<float> numbers;
    ForEach(rank, id, [&](int64_t, float& number) { numbers.push_back(number); });
    return numbers;
  }
  void Set(size_t rank, uint32_t id, const std::vector<float>& numbers) {
    ForEach(rank, id, [&](int64_t n, float& number) { number = numbers.at(n); });
  }
  uint32_t Id(size_t rank, const Instruction& instruction, int i) {
    return traces_[rank].arguments[instruction.first_argument + i].index;
  }
  uint32_t ResultId(size_t rank, const Instruction& instruction) { return traces_[rank].results[instruction.first_result].index; }

  void Do(size_t rank, const Instruction& instruction) {
    const Trace& trace = traces_[rank];
    if (instruction.kind == Instruction::Kind::kFree) memory_[rank][instruction.immediate].clear();
    if (instruction.kind != Instruction::Kind::kOperator) return;
    const std::string& name = trace.OperatorName(instruction);
    if (const auto resize = StorageResizeOf(trace, instruction)) {
      memory_[rank][resize->storage].assign(resize->bytes / 4, -1e9f);
    } else if (name == "aten::empty.memory_format") {
      memory_[rank][trace.values[ResultId(rank, instruction)].storage].assign(
          Elements(trace.geometries[trace.values[ResultId(rank, instruction)].geometry]), -1e9f);
    } else if (name == "aten::clone") {
      Make(rank, instruction);
      Set(rank, ResultId(rank, instruction), Get(rank, Id(rank, instruction, 0)));
    } else if (name == "aten::mm") {
      Make(rank, instruction);
      Multiply(rank, Id(rank, instruction, 0), Id(rank, instruction, 1), ResultId(rank, instruction));
    } else if (name == "aten::mm.out") {
      Multiply(rank, Id(rank, instruction, 0), Id(rank, instruction, 1), Id(rank, instruction, 2));
    } else if (name == "aten::add.out") {
      std::vector<float> a = Get(rank, Id(rank, instruction, 0)), b = Get(rank, Id(rank, instruction, 1));
      for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
      Set(rank, Id(rank, instruction, 3), a);
    } else if (name == "aten::copy_") {
      Set(rank, Id(rank, instruction, 0), Get(rank, Id(rank, instruction, 1)));
    } else if (name == "aten::zero_") {
      ForEach(rank, Id(rank, instruction, 0), [](int64_t, float& number) { number = 0; });
    } else if (name == "aten::add_.Tensor" || name == "test::update") {
      std::vector<float> a = Get(rank, Id(rank, instruction, 0)), b = Get(rank, Id(rank, instruction, 1));
      for (size_t i = 0; i < a.size(); ++i) a[i] += b[i] * (name == "test::update" ? 0.5f : 1.0f);
      Set(rank, Id(rank, instruction, 0), a);
    } else if (name == "test::use" || name == "test::gradient") {
      const std::vector<float> x = Get(rank, Id(rank, instruction, 0)), w = Get(rank, Id(rank, instruction, 1));
      const Value& result = trace.values[ResultId(rank, instruction)];
      memory_[rank][result.storage].assign(Elements(trace.geometries[result.geometry]), 0);
      ForEach(rank, ResultId(rank, instruction), [&](int64_t n, float& number) {
        if (name == "test::gradient") number = x[n % x.size()] * w[n] + static_cast<float>(rank);
        for (size_t k = 0; name == "test::use" && k < w.size(); ++k)
          number += x[n] * w[k] * static_cast<float>((k + n) % 3 + 1) * 0.1f;
      });
    }
  }
  // Memory for the result.
  void Make(size_t rank, const Instruction& instruction) {
    const Value& result = traces_[rank].values[ResultId(rank, instruction)];
    memory_[rank][result.storage].assign(Elements(traces_[rank].geometries[result.geometry]), -1e9f);
  }
  void Multiply(size_t rank, uint32_t left, uint32_t right, uint32_t out) {
    const std::vector<float> a = Get(rank, left), b = Get(rank, right);
    const int64_t k = traces_[rank].geometries[traces_[rank].values[left].geometry].sizes[1];
    const int64_t n = traces_[rank].geometries[traces_[rank].values[right].geometry].sizes[1];
    ForEach(rank, out, [&](int64_t at, float& number) {
      number = 0;
      for (int64_t i = 0; i < k; ++i) number += a.at(at / n * k + i) * b.at(i * n + at % n);
    });
  }
  void Collect(size_t i) {
    const Instruction& instruction = traces_[0].instructions[i];
    if (instruction.kind != Instruction::Kind::kOperator) return;
    const std::string& name = traces_[0].OperatorName(instruction);
    if (name == "lego::all_gather_into") {
      std::vector<float> all;
      for (size_t r = 0; r < traces_.size(); ++r) {
        const auto own = Get(r, Id(r, traces_[r].instructions[i], 1));
        all.insert(all.end(), own.begin(), own.end());
      }
      for (size_t r = 0; r < traces_.size(); ++r) Set(r, Id(r, traces_[r].instructions[i], 0), all);
    } else if (name == "lego::rotate_into") {
      std::vector<std::vector<float>> sent;
      for (size_t r = 0; r < traces_.size(); ++r) sent.push_back(Get(r, Id(r, traces_[r].instructions[i], 1)));
      for (size_t r = 0; r < traces_.size(); ++r)
        Set(r, Id(r, traces_[r].instructions[i], 0), sent[(r + traces_.size() - 1) % traces_.size()]);
    } else if (name == "lego::all_reduce_") {
      std::vector<float> sum;
      for (size_t r = 0; r < traces_.size(); ++r) {
        const auto part = Get(r, Id(r, traces_[r].instructions[i], 0));
        sum.resize(part.size());
        for (size_t k = 0; k < part.size(); ++k) sum[k] += part[k];
      }
      for (size_t r = 0; r < traces_.size(); ++r) Set(r, Id(r, traces_[r].instructions[i], 0), sum);
    } else if (name == "lego::reduce_scatter_into") {
      std::vector<float> sum;
      for (size_t r = 0; r < traces_.size(); ++r) {
        const auto in = Get(r, Id(r, traces_[r].instructions[i], 1));
        sum.resize(in.size());
        for (size_t k = 0; k < in.size(); ++k) sum[k] += in[k];
      }
      for (size_t r = 0; r < traces_.size(); ++r) {
        const size_t part = sum.size() / traces_.size();
        Set(r, Id(r, traces_[r].instructions[i], 0), {sum.begin() + r * part, sum.begin() + (r + 1) * part});
      }
    }
  }

  const std::vector<Trace>& traces_;
  std::vector<std::vector<std::vector<float>>> memory_;  // by rank and storage
};

}  // namespace legoai::graph
