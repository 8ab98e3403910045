// Blocks for tests of Auto-SAC: the one that a dissertation printed, and random ones.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "planner/autosac/facts.h"

namespace legoai::planner::testing {

// The rows of a file of testdata/, its head left out.
inline std::vector<std::vector<std::string>> Rows(const std::string& name) {
  std::ifstream file("planner/autosac/testdata/" + name);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  EXPECT_TRUE(file.is_open()) << name;
  for (std::getline(file, line); std::getline(file, line);) {
    std::vector<std::string> row;
    std::stringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
    rows.push_back(row);
  }
  return rows;
}

// A block of GPT-2 as printed: sac_gpt2_block.csv has op_idx, op_name, runtime_ms, memory_bytes, view_like, random, in_place.
inline BlockFacts PrintedBlock() {
  BlockFacts facts;
  for (const auto& row : Rows("sac_gpt2_block.csv")) {
    OperatorFacts op{.name = row[1], .seconds = std::stod(row[2]) / 1e3, .bytes = std::stoll(row[3])};
    op.view_like = row[4] == "true";
    op.random = row[5] == "true";
    facts.operators.push_back(op);
  }
  return facts;
}

// Products, cheap elementwise operators, views, and some that no policy may keep.
inline BlockFacts RandomBlock(std::mt19937_64& random, int operators) {
  std::uniform_int_distribution<int64_t> mebibytes(1, 400);
  std::uniform_real_distribution<double> logarithm(-6, -2);
  std::uniform_int_distribution<int> kind(0, 9);
  BlockFacts facts;
  for (int i = 0; i < operators; ++i) {
    OperatorFacts op{.name = "aten::mm", .module = "m" + std::to_string(i)};
    const int drawn = kind(random);
    op.view_like = drawn == 0;
    op.keepable = drawn != 1;
    op.bytes = op.view_like ? 0 : mebibytes(random) << 20;
    op.seconds = op.view_like ? 0 : std::pow(10, logarithm(random));
    op.saved = drawn % 2 == 0;
    if (drawn == 2 && i > 0 && facts.operators[i - 1].leader < 0) op.leader = i - 1, op.bytes = 0;
    facts.operators.push_back(op);
  }
  return facts;
}

}  // namespace legoai::planner::testing
