// The frame of a benchmark: rows as a table, or with --json as {"rows": [...], summaries}; failures end it with a message.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace legoai::integration {

// Of at least one value; the larger of the two in the middle.
inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Nearest rank.
inline double Quantile(std::vector<double> values, double share) {
  if (values.empty()) throw std::runtime_error("nothing was measured");
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1];
}

// Prints as rows come. Not thread-safe.
class Rows {
 public:
  explicit Rows(bool json) : json_(json) {
    if (json_) std::printf("{\"rows\": [");
  }
  ~Rows() {
    if (json_) std::printf("]%s}\n", summary_.c_str());
  }
  // `json`: the row's members; `text`: its line.
  void Add(const std::string& json, const std::string& text) {
    if (json_) std::printf("%s{%s}", count_++ == 0 ? "" : ", ", json.c_str());
    Note(text);
  }
  // What is said of rows together. `json`: a member beside "rows"; `text`: a line below them.
  void Summarize(const std::string& json, const std::string& text) {
    summary_ += ", " + json;
    Note(text);
  }
  // A line that only the table has.
  void Note(const std::string& text) {
    if (!json_) std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

 private:
  const bool json_;
  int count_ = 0;
  std::string summary_;
};

// `run(rows)` adds the rows. Gives the exit code of `program`.
template <class Run>
int AddRows(const char* program, bool json, Run run) {
  try {
    Rows rows(json);
    run(rows);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

// Usage of every benchmark over recipes: NAME [--json | PART_OF_A_RECIPE'S_NAME]. `run(rows, part)` adds the rows.
template <class Run>
int BenchMain(int argc, char** argv, Run run) {
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  const std::string part = argc > 1 && !json ? argv[1] : "";
  return AddRows(argv[0], json, [&](Rows& rows) { run(rows, part); });
}

}  // namespace legoai::integration
