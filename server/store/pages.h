// Reads the pages of a SQLite file and of its write-ahead log without SQLite, which refuses what it cannot reach from the root,
// although most pages of a damaged file are intact. The format is https://www.sqlite.org/fileformat2.html. Writes nothing.
// Thread-safety: immutable.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::store {

// A file in memory as it is on disk; empty if it does not exist.
class MappedFile {
 public:
  // Errors: Unavailable if it cannot be read.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::string_view bytes) : bytes_(bytes) {}
  std::string_view bytes_;
};

// The committed part of a write-ahead log.
struct LogContent {
  uint32_t page_size = 0;                      // 0: no log, or an empty one
  uint32_t page_count = 0;                     // of the database after the last commit; 0: no commit
  std::map<uint32_t, std::string_view> pages;  // the latest version of each, within the log's bytes
  // Why the log is damaged: it continues after what SQLite would take for its end. Empty: undamaged. A torn or missing last
  // commit cannot be distinguished from a crash before it was durable.
  std::string damage;
};
LogContent ReadLog(std::string_view log);

// A value of a row. Text and blobs are bytes.
struct Cell {
  enum class Kind { kNull, kInteger, kReal, kText, kBlob } kind = Kind::kNull;
  int64_t number = 0;
  std::string bytes;
};

struct RawRow {
  bool of_table = false;  // with a row id; else of an index or of a table without row ids
  int64_t row_id = 0;
  std::vector<Cell> cells;
};

class DatabasePages {
 public:
  static constexpr uint32_t kPageSize = 4096;  // of the store's files

  // `log` is the result of ReadLog() for the database's log. Both must outlive it.
  DatabasePages(std::string_view database, const LogContent& log);

  // Whether the first page has the header of a database.
  bool has_header() const { return has_header_; }
  // Passes all rows of all pages in use to `take`, of any table, in page order. Returns the number of unreadable rows.
  int64_t ForEachRow(const std::function<void(const RawRow&)>& take) const;

 private:
  std::string_view Page(uint32_t number) const;  // empty: missing
  std::set<uint32_t> FreePages() const;
  std::optional<RawRow> ReadRow(std::string_view page, size_t at, uint8_t kind) const;
  bool ReadPayload(std::string_view page, size_t at, uint64_t size, bool of_table, std::string* payload) const;

  const std::string_view database_;
  const LogContent& log_;
  uint32_t page_size_ = kPageSize, usable_ = kPageSize, page_count_ = 0;
  bool has_header_ = false;
};

}  // namespace legoai::store
