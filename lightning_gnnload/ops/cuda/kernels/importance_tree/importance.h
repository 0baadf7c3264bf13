// importance.h: how much a neighbour matters to a layer, as an integer.
//
// The importance of node u to some destinations is the squared norm of u's column in their
// row-normalised adjacency: each edge from u into a destination of in-degree d adds 1 / d^2, and one of
// weight w into a destination whose edges weigh W adds (w / W)^2. Here it is counted in units of
// 2^-k, 2^k = 2^62 >> (bits of the number of destinations): every edge adds at least one unit, and
// all together less than 2^63.
// Sources: FastGCN (ICLR'18), equation 6; LADIES (NeurIPS'19), section 3.2.
#pragma once

#include "common/draw.h"

namespace lg {

class ImportanceUnits {
 public:
  // 1 <= num_destinations
  LG_HD explicit ImportanceUnits(int64_t num_destinations) : one_(int64_t(1) << 62) {
    for (; num_destinations > 0; num_destinations /= 2) one_ /= 2;
  }

  // Of one edge into a destination of this in-degree: rounded down, twice as well as once.
  LG_HD int64_t of_edge(int64_t degree) const {
    const int64_t units = one_ / degree / degree;
    return units > 0 ? units : 1;
  }

  LG_HD int64_t one() const { return one_; }  // what an only edge adds

 private:
  int64_t one_;
};

}  // namespace lg
