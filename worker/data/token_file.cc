#include "worker/data/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"
#include "worker/checkpoint/sha256.h"
#include "worker/data/dataset_facts.h"

namespace legoai::data {
namespace {

// The file: this header, then the ids.
struct Header {
  char magic[8] = {'L', 'G', 'T', 'O', 'K', 'E', 'N', '1'};
  int64_t count = 0;
};

absl::StatusOr<std::vector<int32_t>> Tokenize(const v1::Dataset& dataset, const Tokenizer& tokenizer,
                                              const checkpoint::Cancel& cancel) {
  absl::StatusOr<std::string> path = DatasetPath(dataset.uri());
  if (!path.ok()) return path.status();
  absl::StatusOr<checkpoint::MappedFile> text = checkpoint::MappedFile::Open(*path);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text->bytes(), cancel);
  if (!ids.ok()) return Annotate(ids.status(), *path);
  if (tokenizer.BeginOfText()) ids->insert(ids->begin(), *tokenizer.BeginOfText());
  if (tokenizer.EndOfText()) ids->push_back(*tokenizer.EndOfText());
  return ids;
}

// Files are named PREFIX, 32 digits of a digest, SUFFIX.
constexpr std::string_view kPrefix = "tokens-", kSuffix = ".bin";
constexpr std::chrono::hours kLongestPause(1);  // between two writes of a file that is being made

// What a process that was killed has left half made.
void RemoveAbandoned(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> abandoned;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const size_t suffix = name.find(absl::StrCat(std::string(kSuffix), "."));
    std::error_code gone;
    const auto written = entry->last_write_time(gone);
    const bool old = !gone && std::filesystem::file_time_type::clock::now() - written > kLongestPause;
    if (name.rfind(kPrefix, 0) == 0 && suffix != std::string::npos && old) abandoned.push_back(entry->path());
  }
  for (const auto& path : abandoned) std::filesystem::remove(path, error);
}

// Two that make the same file at once, be they hosts, processes or threads, write files of their own.
std::string UnfinishedName(const std::string& path) {
  std::random_device random;
  return absl::StrFormat("%s.%d.%08x%08x", path, getpid(), random(), random());
}

absl::Status WriteIds(checkpoint::OutputFile& file, const std::vector<int32_t>& ids, const checkpoint::Cancel& cancel) {
  Header header;
  header.count = static_cast<int64_t>(ids.size());
  absl::Status status = file.WriteAt(0, &header, sizeof(header));
  constexpr int64_t kPiece = checkpoint::kPieceBytes / sizeof(int32_t);
  for (int64_t done = 0; status.ok() && done < header.count; done += kPiece) {
    const int64_t bytes = std::min(kPiece, header.count - done) * static_cast<int64_t>(sizeof(int32_t));
    status = checkpoint::CheckNotCancelled(cancel);
    if (status.ok()) status = file.WriteAt(sizeof(header) + done * sizeof(int32_t), ids.data() + done, bytes);
  }
  return status;
}

absl::Status Store(const std::string& path, const std::vector<int32_t>& ids, const checkpoint::Cancel& cancel) {
  absl::Status status = checkpoint::MakeFolders(std::filesystem::path(path).parent_path().string());
  if (!status.ok()) return status;
  const std::string unfinished = UnfinishedName(path);
  absl::StatusOr<checkpoint::OutputFile> file = checkpoint::OutputFile::Create(unfinished);
  if (!file.ok()) return file.status();
  status = WriteIds(*file, ids, cancel);
  if (status.ok()) status = file->Close();
  if (status.ok()) status = checkpoint::RenameFile(unfinished, path);
  std::error_code error;
  if (!status.ok()) std::filesystem::remove(unfinished, error);
  return status;
}

}  // namespace

std::optional<TokenFile> TokenFile::Map(const std::string& path) {
  absl::StatusOr<checkpoint::MappedFile> file = checkpoint::MappedFile::Open(path);
  Header header;
  if (!file.ok() || file->bytes().size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, file->bytes().data(), sizeof(header));
  const std::string_view rest = file->bytes().substr(sizeof(header));
  if (std::memcmp(header.magic, Header().magic, sizeof(header.magic)) != 0 || rest.size() / sizeof(int32_t) != header.count ||
      rest.size() % sizeof(int32_t) != 0)
    return std::nullopt;
  TokenFile mapped;
  mapped.tokens_ = {reinterpret_cast<const int32_t*>(rest.data()), static_cast<size_t>(header.count)};
  mapped.file_ = *std::move(file);
  return mapped;
}

absl::StatusOr<TokenFile> TokenFile::Open(const v1::Dataset& dataset, const Tokenizer& tokenizer, const std::string& cache_folder,
                                          const checkpoint::Cancel& cancel) {
  const std::string key = checkpoint::Sha256(absl::StrCat(dataset.sha256(), " ", tokenizer.Identity()));
  const std::string path = absl::StrCat(cache_folder, "/", std::string(kPrefix), key.substr(0, 32), std::string(kSuffix));
  if (!cache_folder.empty()) {
    RemoveAbandoned(cache_folder);
    if (std::optional<TokenFile> cached = Map(path)) return *std::move(cached);
  }
  absl::StatusOr<std::vector<int32_t>> ids = Tokenize(dataset, tokenizer, cancel);
  if (!ids.ok()) return ids.status();
  if (!cache_folder.empty()) {
    absl::Status status = Store(path, *ids, cancel);
    if (!status.ok()) return status;
    if (std::optional<TokenFile> cached = Map(path)) return *std::move(cached);
  }
  TokenFile tokens;
  tokens.memory_ = *std::move(ids);
  tokens.tokens_ = tokens.memory_;
  return tokens;
}

}  // namespace legoai::data
