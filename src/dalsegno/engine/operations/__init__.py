"""Operations on executions beyond starting them."""
