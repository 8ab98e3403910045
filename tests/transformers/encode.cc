// encode TOKENIZER FOLDER: exports the tokenizer into FOLDER, and for each text of a JSON list on standard input writes its ids,
// with what a document begins with, as a list of lists. What tokenizers_test.py holds against transformers.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/data/tokenizer.h"

namespace legoai {
namespace {

constexpr int64_t kContext = 4096;

absl::Status Encode(const std::string& tokenizer_path, const std::string& folder) {
  const auto tokenizer = data::LoadTokenizer(tokenizer_path);
  if (!tokenizer.ok()) return tokenizer.status();
  if (absl::Status status = data::ExportTokenizer(**tokenizer, kContext, folder); !status.ok()) return status;
  const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  nlohmann::json all = nlohmann::json::array();
  for (const auto& one : nlohmann::json::parse(text)) {
    auto ids = (*tokenizer)->Encode(one.get<std::string>());
    if (!ids.ok()) return ids.status();
    if (const auto begin = (*tokenizer)->BeginOfText()) ids->insert(ids->begin(), *begin);
    all.push_back(*ids);
  }
  std::cout << all.dump() << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace legoai

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: encode TOKENIZER FOLDER < TEXTS.json\n");
    return 2;
  }
  const absl::Status status = legoai::Encode(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "encode: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
