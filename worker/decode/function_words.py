"""English words that carry grammar and no theme. Gravity never pulls on them."""

from __future__ import annotations

_WORDS = """
a about above after again against all also although am among an and any anything are aren't as at be
because been before being below between both but by can can't cannot could couldn't did didn't do
does doesn't doing don't down during each either else ever every everything few for from further had
hadn't has hasn't have haven't having he her here hers herself him himself his how however i if in
into is isn't it it's its itself just least less let may me might mine more most much must mustn't
my myself neither no nobody none nor not nothing now of off on once one only onto or other others
ought our ours ourselves out over own per rather same shall shan't she should shouldn't since so
some somebody something such than that that's the their theirs them themselves then there there's
therefore these they this those though through thus to too toward towards under until up upon us
very was wasn't we were weren't what whatever when whenever where whether which whichever while who
whoever whom whose why will with within without won't would wouldn't yet you your yours yourself
yourselves n't 's 're 've 'd 'll 'm
"""

FUNCTION_WORDS = frozenset(_WORDS.split())
