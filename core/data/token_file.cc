#include "core/data/token_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <random>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/data/dataset_facts.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::data {

// What a cache must be of.
struct TokenFile::Wanted {
  std::string source, tokenizer;  // SHA-256 of the text, and of the tokenizer's identity
  int64_t vocab_size = 0;
};

// The file: this, then the ids.
struct TokenFile::Header {
  char magic[8] = {'L', 'G', 'T', 'O', 'K', 'E', 'N', '2'};
  int64_t count = 0;
  char source[64] = {}, tokenizer[64] = {};  // as in Wanted
  uint32_t ids_crc = 0;                      // CRC-32C
  uint32_t header_crc = 0;                   // of what stands before it

  static Header Of(const Wanted& wanted, const std::vector<int32_t>& ids) {
    Header header;
    header.count = static_cast<int64_t>(ids.size());
    wanted.source.copy(header.source, sizeof(header.source));
    wanted.tokenizer.copy(header.tokenizer, sizeof(header.tokenizer));
    header.ids_crc = checkpoint::Crc32c(ids.data(), ids.size() * sizeof(int32_t));
    header.header_crc = header.Crc();
    return header;
  }

  uint32_t Crc() const { return checkpoint::Crc32c(this, offsetof(Header, header_crc)); }
  std::string Bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }

  // Error: not one of `wanted`, followed by so many bytes.
  absl::Status Check(const Wanted& wanted, size_t bytes) const {
    if (std::memcmp(magic, Header().magic, sizeof(magic)) != 0) return absl::DataLossError("was made by another version");
    if (header_crc != Crc()) return absl::DataLossError("has a header that does not match its checksum");
    if (std::string_view(source, sizeof(source)) != wanted.source) return absl::DataLossError("is of another text");
    if (std::string_view(tokenizer, sizeof(tokenizer)) != wanted.tokenizer) return absl::DataLossError("is of another tokenizer");
    if (bytes % sizeof(int32_t) == 0 && bytes / sizeof(int32_t) == static_cast<uint64_t>(count)) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("has ", bytes, " bytes of ids where ", count, " ids are due"));
  }
};

namespace {

constexpr mode_t kOwnerFolder = 0700, kOwnerFile = 0600, kOthers = 077;
// Ids between two questions whether to go on, of which a launcher hears that this rank is alive: a disk that takes seconds for
// each page must not look like one that hangs.
constexpr int64_t kPiece = checkpoint::kPieceBytes / sizeof(int32_t), kPieceOfPages = 4096;

// Reads every id once. Gives their CRC-32C; errors: an id that is not in [0, vocab_size), Cancelled.
absl::StatusOr<uint32_t> CheckIds(std::span<const int32_t> ids, int64_t vocab_size, const checkpoint::Cancel& cancel) {
  uint32_t crc = 0;
  for (size_t begin = 0; begin < ids.size(); begin += kPieceOfPages) {
    RETURN_IF_ERROR(checkpoint::CheckNotCancelled(cancel));
    const auto piece = ids.subspan(begin, std::min<size_t>(kPieceOfPages, ids.size() - begin));
    crc = checkpoint::Crc32c(piece.data(), piece.size_bytes(), crc);
    const auto wrong = std::find_if(piece.begin(), piece.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
    if (wrong == piece.end()) continue;
    return FieldError(absl::StrCat("token ", begin + (wrong - piece.begin())), absl::StrCat(*wrong),
                      absl::StrCat("is no id of the tokenizer, which has ", vocab_size), absl::StatusCode::kDataLoss);
  }
  return crc;
}

// The text at `path` is still the one of which `dataset` tells: its ids will be kept under that digest.
absl::Status CheckUnchanged(const v1::Dataset& dataset, std::string_view text, const checkpoint::Cancel& cancel) {
  ASSIGN_OR_RETURN(const std::string digest, checkpoint::Sha256(text, cancel));
  if (digest == dataset.sha256()) return absl::OkStatus();
  return FieldError("training.dataset_path", dataset.uri(),
                    absl::StrCat("has changed while it was read: its SHA-256 was ", dataset.sha256(), " and is ", digest,
                                 "; start again when nobody writes to it"),
                    absl::StatusCode::kFailedPrecondition);
}

absl::StatusOr<std::vector<int32_t>> Tokenize(const v1::Dataset& dataset, const Tokenizer& tokenizer,
                                              const checkpoint::Cancel& cancel) {
  ASSIGN_OR_RETURN(std::string path, DatasetPath(dataset.uri()));
  ASSIGN_OR_RETURN(checkpoint::MappedFile text, checkpoint::MappedFile::Open(path));
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text.bytes(), cancel);
  if (!ids.ok()) return Annotate(ids.status(), path);
  RETURN_IF_ERROR(CheckUnchanged(dataset, text.bytes(), cancel));
  if (tokenizer.BeginOfText()) ids->insert(ids->begin(), *tokenizer.BeginOfText());
  if (tokenizer.EndOfText()) ids->push_back(*tokenizer.EndOfText());
  if (const auto sound = CheckIds(*ids, tokenizer.VocabSize(), cancel); !sound.ok()) return Annotate(sound.status(), path);
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

// The folder is there and its owner's alone. One that was made looser, by an earlier version or by hand, is tightened.
absl::Status MakePrivateFolder(const std::string& folder) {
  RETURN_IF_ERROR(checkpoint::MakeFolders(folder));
  struct stat facts;
  if (stat(folder.c_str(), &facts) != 0) return checkpoint::FileError(folder, "cannot read", errno);
  if (facts.st_uid != geteuid())
    return FieldError(
        folder, "",
        absl::StrCat("belongs to user ", facts.st_uid, ", and token caches are kept in folders of who trains, user ", geteuid(),
                     ": choose another job.dump_folder"),
        absl::StatusCode::kPermissionDenied);
  if ((facts.st_mode & 07777) != kOwnerFolder && chmod(folder.c_str(), kOwnerFolder) != 0)
    return checkpoint::FileError(folder, "cannot be closed to other users", errno);
  return absl::OkStatus();
}

// Error: what is at `path` is nothing that only we could have made. NotFound where nothing is.
absl::Status CheckOurs(const std::string& path) {
  struct stat facts;
  if (lstat(path.c_str(), &facts) != 0) return checkpoint::FileError(path, "cannot open", errno);
  std::string fault;
  if (!S_ISREG(facts.st_mode)) {
    fault = "is no regular file";
  } else if (facts.st_uid != geteuid()) {
    fault = absl::StrCat("belongs to user ", facts.st_uid);
  } else if ((facts.st_mode & kOthers) != 0) {
    fault = absl::StrFormat("is open to other users (mode %04o)", facts.st_mode & 07777);
  }
  return fault.empty() ? absl::OkStatus() : absl::PermissionDeniedError(fault);
}

absl::Status WriteIds(checkpoint::OutputFile& file, std::string_view header, const std::vector<int32_t>& ids,
                      const checkpoint::Cancel& cancel) {
  const int64_t offset = static_cast<int64_t>(header.size()), count = static_cast<int64_t>(ids.size());
  absl::Status status = file.WriteAt(0, header.data(), offset);
  for (int64_t done = 0; status.ok() && done < count; done += kPiece) {
    const int64_t bytes = std::min(kPiece, count - done) * static_cast<int64_t>(sizeof(int32_t));
    status = checkpoint::CheckNotCancelled(cancel);
    if (status.ok()) status = file.WriteAt(offset + done * sizeof(int32_t), ids.data() + done, bytes);
  }
  return status;
}

// In a private folder, so nobody opens the file before it is private, too.
absl::Status Store(const std::string& path, std::string_view header, const std::vector<int32_t>& ids,
                   const checkpoint::Cancel& cancel) {
  const std::string unfinished = UnfinishedName(path);
  ASSIGN_OR_RETURN(checkpoint::OutputFile file, checkpoint::OutputFile::Create(unfinished));
  absl::Status status;
  if (chmod(unfinished.c_str(), kOwnerFile) != 0)
    status = checkpoint::FileError(unfinished, "cannot be closed to other users", errno);
  if (status.ok()) status = WriteIds(file, header, ids, cancel);
  if (status.ok()) status = file.Close();
  if (status.ok()) status = checkpoint::RenameFile(unfinished, path);
  std::error_code error;
  if (!status.ok()) std::filesystem::remove(unfinished, error);
  return status;
}

}  // namespace

// Errors say what is wrong with the file as the end of a sentence; NotFound where none is, Cancelled.
absl::StatusOr<TokenFile> TokenFile::Map(const std::string& path, const Wanted& wanted, const checkpoint::Cancel& cancel) {
  RETURN_IF_ERROR(CheckOurs(path));
  ASSIGN_OR_RETURN(checkpoint::MappedFile file, checkpoint::MappedFile::Open(path));
  Header header;
  if (file.bytes().size() < sizeof(header)) return absl::DataLossError("is cut short");
  std::memcpy(&header, file.bytes().data(), sizeof(header));
  const std::string_view rest = file.bytes().substr(sizeof(header));
  RETURN_IF_ERROR(header.Check(wanted, rest.size()));
  TokenFile mapped;
  mapped.tokens_ = {reinterpret_cast<const int32_t*>(rest.data()), static_cast<size_t>(header.count)};
  const absl::StatusOr<uint32_t> crc = CheckIds(mapped.tokens_, wanted.vocab_size, cancel);
  if (absl::IsCancelled(crc.status())) return crc.status();
  if (!crc.ok()) return absl::DataLossError(absl::StrCat("is wrong: ", crc.status().message()));
  if (*crc != header.ids_crc) return absl::DataLossError("has ids that do not match their checksum");
  mapped.file_ = std::move(file);
  return mapped;
}

absl::StatusOr<TokenFile> TokenFile::Open(const v1::Dataset& dataset, const Tokenizer& tokenizer, const std::string& cache_folder,
                                          const checkpoint::Cancel& cancel) {
  if (cache_folder.empty()) return InMemory(Tokenize(dataset, tokenizer, cancel), "");
  RETURN_IF_ERROR(MakePrivateFolder(cache_folder));
  RemoveAbandoned(cache_folder);
  const Wanted wanted = {dataset.sha256(), checkpoint::Sha256(tokenizer.Identity()), tokenizer.VocabSize()};
  const std::string key = checkpoint::Sha256(absl::StrCat(dataset.sha256(), " ", tokenizer.Identity()));
  const std::string path = absl::StrCat(cache_folder, "/", std::string(kPrefix), key.substr(0, 32), std::string(kSuffix));
  absl::StatusOr<TokenFile> cached = Map(path, wanted, cancel);
  if (cached.ok() || absl::IsCancelled(cached.status())) return cached;
  std::string warning;
  if (!absl::IsNotFound(cached.status()))
    warning = absl::StrCat("the token cache ", path, " ", cached.status().message(), ": the text is tokenized anew");
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, Tokenize(dataset, tokenizer, cancel));
  RETURN_IF_ERROR(Store(path, Header::Of(wanted, ids).Bytes(), ids, cancel));
  cached = Map(path, wanted, cancel);
  if (cached.ok()) cached->warning_ = std::move(warning);
  if (cached.ok() || absl::IsCancelled(cached.status())) return cached;
  return InMemory(std::move(ids), absl::StrCat("the token cache ", path, ", just made, ", cached.status().message(),
                                               ": this process keeps the tokens in memory of its own"));
}

absl::StatusOr<TokenFile> TokenFile::InMemory(absl::StatusOr<std::vector<int32_t>> ids, std::string warning) {
  if (!ids.ok()) return ids.status();
  TokenFile tokens;
  tokens.memory_ = *std::move(ids);
  tokens.tokens_ = tokens.memory_;
  tokens.warning_ = std::move(warning);
  return tokens;
}

}  // namespace legoai::data
