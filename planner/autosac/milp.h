// A mixed-integer linear program, solved by CBC (Forrest and Lougee-Heimer 2005): minimizes a linear cost over rows and bounds.
//
// Not thread-safe; solvers of different programs may run at a time. Prints nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::planner {

class Milp {
 public:
  using Terms = std::vector<std::pair<int, double>>;  // (variable, coefficient)
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  // Returns its number, from 0 on.
  int AddVariable(double least, double most, double cost, bool integer = false) {
    variables_.push_back({least, most, cost, integer});
    return static_cast<int>(variables_.size()) - 1;
  }
  void AddAtMost(Terms terms, double most) { rows_.push_back({std::move(terms), 'L', most}); }
  void AddAtLeast(Terms terms, double least) { rows_.push_back({std::move(terms), 'G', least}); }
  void AddEqual(Terms terms, double value) { rows_.push_back({std::move(terms), 'E', value}); }

  struct Limits {
    double seconds = 30;
    int64_t nodes = 1'000'000;  // of the search: unlike seconds, the same on any machine
    double gap = 0;  // a solution may be worse than the best one by this share
  };
  // The value of each variable; integers are whole. Errors: NotFound if no values meet the rows; DeadlineExceeded if none were
  // found in time.
  absl::StatusOr<std::vector<double>> Minimize(const Limits& limits) const;

 private:
  struct Variable {
    double least, most, cost;
    bool integer;
  };
  struct Row {
    Terms terms;
    char sense;
    double bound;
  };
  std::vector<Variable> variables_;
  std::vector<Row> rows_;
};

}  // namespace legoai::planner
